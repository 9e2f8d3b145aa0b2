//! Takes secrets out of text that a driver wrote.
//!
//! Invariants
//! 1. Whatever the key it stands under, in any of the three forms of connection strings (ODBC `KEY=value;`, URL, libpq
//!    `key=value`), a password, token or key is found in its written and in its plain form.
//! 2. Cleaning never gives more than it got: a secret too short to be replaced without wrecking the text replaces the
//!    whole text instead.
//!
//! All three forms are read at once, since a driver may accept another than the one we would guess: a text taken for a
//! secret by mistake costs three stars in a log line.

/// A text as short as this would wreck any message it is replaced in.
const SHORTEST: usize = 3;

/// Knows the secrets of one connection string and takes them out of any text, whatever the key they stood under.
#[derive(Clone, Default)]
pub struct Scrub {
    /// Longest first, so that no part of one is left by another.
    secrets: Vec<Box<str>>,
    /// One of the secrets is too short to be looked for.
    short: bool,
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Scrub({} secrets)", self.secrets.len())
    }
}

impl Scrub {
    /// Collects the secrets of a connection string or URL, the whole of it among them.
    pub fn of_connection(connection: &str) -> Self {
        let mut scrub = Scrub::default();
        scrub.keep(connection);
        scrub.keep(connection.trim());
        scrub.odbc(connection);
        scrub.url(connection);
        scrub.libpq(connection);
        scrub.secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        scrub.secrets.dedup();
        scrub
    }

    /// The text with each secret replaced by `***`.
    pub fn clean(&self, text: &str) -> String {
        if self.short && !text.is_empty() {
            return "*** (the message is not shown: the secret is too short to be taken out of it)".into();
        }
        self.secrets
            .iter()
            .fold(text.to_owned(), |text, secret| if text.contains(&**secret) { text.replace(&**secret, "***") } else { text })
    }

    fn keep(&mut self, secret: &str) {
        match secret.len() {
            0 => {}
            length if length < SHORTEST => self.short = true,
            _ => self.secrets.push(secret.into()),
        }
    }

    /// `KEY=value;`, where a value in braces may hold `;` and `}}` stands for a brace.
    fn odbc(&mut self, connection: &str) {
        let mut rest = connection;
        while let Some((key, after)) = rest.split_once('=') {
            let key = key.rsplit(';').next().unwrap_or(key);
            let value = after.trim_start();
            let (written, plain) = match value.strip_prefix('{') {
                Some(inner) => braced(inner),
                None => {
                    let value = value.split(';').next().unwrap_or_default();
                    (value, value.trim_end().to_owned())
                }
            };
            if is_secret_key(key) {
                self.keep(written);
                self.keep(&plain);
            }
            rest = &value[value.len().min(written.len() + usize::from(value.starts_with('{')))..];
        }
    }

    /// `scheme://user:password@host/path?password=…`, percent-encoded or not. The last `@` before the path counts, so that a
    /// password with an `@` nobody encoded is found too.
    fn url(&mut self, connection: &str) {
        let Some((_, rest)) = connection.split_once("://") else { return };
        let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        for end in [path, rest.len()] {
            if let Some(at) = rest[..end].rfind('@')
                && let Some((_, password)) = rest[..at].split_once(':')
                && (password.len() >= SHORTEST || !rest[path..].contains('@'))
            {
                self.keep(password);
                self.keep(&percent_decoded(password));
            }
        }
        let Some((_, query)) = rest.split_once('?') else { return };
        for pair in query.split(['&', ';']) {
            if let Some((key, value)) = pair.split_once('=')
                && is_secret_key(key)
            {
                self.keep(value);
                self.keep(&percent_decoded(value));
            }
        }
    }

    /// `key = value` pairs parted by blanks; a value may stand in single quotes, with `\` before a quote or backslash.
    fn libpq(&mut self, connection: &str) {
        let mut rest = connection;
        while let Some((key, after)) = rest.split_once('=') {
            let key = key.trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
            let value = after.trim_start();
            let quoted = value.starts_with('\'');
            let body = if quoted { &value[1..] } else { value };
            let mut plain = String::new();
            let mut end = body.len();
            let mut escaped = false;
            for (at, letter) in body.char_indices() {
                match letter {
                    _ if escaped => {
                        plain.push(letter);
                        escaped = false;
                    }
                    '\\' => escaped = true,
                    '\'' if quoted => {
                        end = at;
                        break;
                    }
                    letter if !quoted && letter.is_whitespace() => {
                        end = at;
                        break;
                    }
                    letter => plain.push(letter),
                }
            }
            if is_secret_key(key) {
                self.keep(&body[..end]);
                self.keep(&plain);
            }
            rest = &body[end..];
        }
    }
}

/// The inside of `{…}` as written and as meant.
fn braced(inner: &str) -> (&str, String) {
    let mut plain = String::new();
    let mut letters = inner.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '}' {
            match letters.peek() {
                Some((_, '}')) => drop(letters.next()),
                _ => return (&inner[..at], plain),
            }
        }
        plain.push(letter);
    }
    (inner, plain)
}

/// Whether what stands under this key is a secret. Asked loosely: `new_password` and `SSL Key Password` are ones too.
fn is_secret_key(key: &str) -> bool {
    const WHOLE: [&str; 4] = ["pwd", "pass", "key", "pw"];
    const PARTS: [&str; 10] =
        ["passw", "passphrase", "passcode", "pwd", "secret", "token", "apikey", "accesskey", "privatekey", "credential"];
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    WHOLE.contains(&key.as_str()) || PARTS.iter().any(|part| key.contains(part))
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c10_secrets_are_found_under_every_key_and_form() {
        for (connection, secrets) in [
            ("DSN=AS400;UID=fleet;PWD=hunter2!", &["hunter2!"][..]),
            ("Driver={IBM Db2};Password={a;b};Uid=x", &["a;b"]),
            ("Driver={IBM Db2};Password={open;se}}same};Uid=x", &["open;se}}same", "open;se}same"]),
            ("uid=x; Pass Word = spaced out ;Database=y", &["spaced out"]),
            (
                "PASSWD=first1;Token=second2;ApiKey=third3;API_KEY=fourth4;Client Secret=fifth5",
                &["first1", "second2", "third3", "fourth4", "fifth5"],
            ),
            ("postgres://fleet:p%40ss%3Aword@db.example:5432/fleet", &["p%40ss%3Aword", "p@ss:word"]),
            ("postgres://fleet:p@ss/word@db.example/fleet", &["p@ss/word"]),
            ("postgresql:///fleet?user=x&password=in%20query&host=/run", &["in%20query", "in query"]),
            ("host=db user=x password=plain123 dbname=y", &["plain123"]),
            ("host=db password = 'quo\\'ted \\\\ one' user=x", &["quo\\'ted \\\\ one", "quo'ted \\ one"]),
        ] {
            let scrub = Scrub::of_connection(connection);
            for secret in secrets {
                let cleaned = scrub.clean(&format!("login with {secret} failed"));
                assert!(!cleaned.contains(secret), "{secret} of {connection} is told: {cleaned}");
                assert!(cleaned.starts_with("login with ***"), "{cleaned}");
            }
            assert_eq!(scrub.clean(&format!("could not open {connection}")), "could not open ***");
            assert!(!format!("{scrub:?}").contains(secrets[0]));
        }
    }

    #[test]
    fn short_and_empty_secrets_never_wreck_a_message() {
        assert_eq!(Scrub::of_connection("UID=x;PWD=;DATABASE=y").clean("SQL1336N no such host"), "SQL1336N no such host");
        let cleaned = Scrub::of_connection("UID=x;PWD=o;DATABASE=y").clean("could not open o");
        assert!(cleaned.starts_with("***") && !cleaned.contains("could not"), "{cleaned}");
        assert_eq!(Scrub::default().clean("nothing to hide"), "nothing to hide");
        assert_eq!(Scrub::of_connection("").clean("nothing to hide"), "nothing to hide");
    }

    #[test]
    fn odd_connection_strings_are_only_text() {
        for odd in ["=", "==;=", "PWD", "PWD={", "PWD={}", "PWD={}}", "a://:@", "a://:@?=&", "password='", "password='\\", "pwd=é;", "%"] {
            let _no_panic = Scrub::of_connection(odd).clean("text");
        }
    }
}
