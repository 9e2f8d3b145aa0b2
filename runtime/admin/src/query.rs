//! What a page takes in its query string.

use std::borrow::Cow;

use spillgate_engine::query;
use spillgate_model::{Code, Refusal};

/// The values of these names, each of which may be there once. Whatever else is there is refused in the words of `takes`.
pub(crate) fn read<'a, const N: usize>(
    query: Option<&'a str>,
    names: [&str; N],
    takes: &str,
) -> Result<[Option<Cow<'a, str>>; N], Refusal> {
    let query = query.unwrap_or_default();
    let malformed = || Refusal::new(Code::Malformed, takes);
    if !query::names(query).all(|name| name.is_some_and(|name| names.contains(&&*name))) {
        return Err(malformed());
    }
    let mut read = [const { None }; N];
    for (value, name) in read.iter_mut().zip(names) {
        let mut values = query::values(query, name);
        *value = values.next().map(|value| value.ok_or_else(malformed)).transpose()?;
        if values.next().is_some() {
            return Err(malformed());
        }
    }
    Ok(read)
}
