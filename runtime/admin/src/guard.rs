//! Who may ask at all: Host and Origin are ours, and the key is an admin's.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Uri};
use sha2::{Digest as _, Sha256};
use spillgate_config::plan::Admin;
use spillgate_model::{Code, Refusal};
use subtle::ConstantTimeEq as _;

/// Refuses what a web page of a stranger could send (case C8): a name that is not ours resolved to our address, or a
/// request made by a page of another origin. Programs send no Origin.
pub(crate) fn our_own(uri: &Uri, headers: &HeaderMap, host_name: &str) -> Result<(), Refusal> {
    let denied = |detail: &str| Refusal::new(Code::Forbidden, detail);
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (uri.authority(), hosts.next(), hosts.next()) {
        (Some(authority), ..) => authority.as_str(),
        (None, Some(host), None) => host.to_str().unwrap_or_default(),
        _ => "",
    };
    if !is_ours(host, host_name) {
        return Err(denied("This name is not one of this listener's: use its address, localhost or the machine's name."));
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
            return Err(denied("Requests from pages of other origins are not answered."));
        }
    }
    Ok(())
}

/// An address cannot be rebound to another one; of names only two are ours.
fn is_ours(host: &str, host_name: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || (!host_name.is_empty() && name.eq_ignore_ascii_case(host_name))
}

/// The admin whose key it is. Every key is compared, in constant time.
pub(crate) fn who(headers: &HeaderMap, admins: &[Admin]) -> Result<Arc<str>, Refusal> {
    let refused = |detail: &str| Refusal::new(Code::Unauthenticated, detail);
    let key = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let hash: [u8; 32] = Sha256::digest(key.ok_or_else(|| refused("Send the header Authorization: Bearer KEY."))?).into();
    let mut found = None;
    for admin in admins {
        for known in &admin.keys {
            if bool::from(known.ct_eq(&hash)) {
                found = Some(admin.name.clone());
            }
        }
    }
    found.ok_or_else(|| refused("The key is not known here."))
}

fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.split_at_checked(7)?;
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().expect("a header"));
        }
        our_own(&Uri::from_static("/metrics"), &headers, "fleet-7").is_ok()
    }

    #[test]
    fn c8_only_our_own_names_are_answered() {
        for host in ["127.0.0.1:8081", "localhost:8081", "LOCALHOST", "[::1]:8081", "10.1.2.3", "fleet-7:8081"] {
            assert!(allowed(host, None), "{host}");
        }
        for host in
            ["attacker.test", "attacker.test:8081", "127.0.0.1.attacker.test", "localhost.attacker.test", "fleet-7.attacker.test", ""]
        {
            assert!(!allowed(host, None), "{host}");
        }
        assert!(our_own(&Uri::from_static("/metrics"), &HeaderMap::new(), "").is_err(), "no Host at all");
        assert!(our_own(&Uri::from_static("http://attacker.test/metrics"), &HeaderMap::new(), "").is_err());
    }

    #[test]
    fn c8_a_page_of_another_origin_is_refused() {
        assert!(allowed("127.0.0.1:8081", Some("http://127.0.0.1:8081")));
        for origin in
            ["http://attacker.test", "null", "http://127.0.0.1:9999", "http://127.0.0.1", "", "http://127.0.0.1:8081.attacker.test"]
        {
            assert!(!allowed("127.0.0.1:8081", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn only_a_whole_key_of_an_admin_lets_in() {
        let hash = |key: &str| -> [u8; 32] { Sha256::digest(key).into() };
        let admins =
            [Admin { name: "alice".into(), keys: vec![hash("a-1"), hash("a-2")] }, Admin { name: "bob".into(), keys: vec![hash("b-1")] }];
        let ask = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
            who(&headers, &admins).map_err(|refusal| refusal.code)
        };
        assert_eq!(ask("Bearer a-2").as_deref(), Ok("alice"));
        assert_eq!(ask("bearer b-1").as_deref(), Ok("bob"));
        for wrong in ["Bearer a-", "Bearer a-22", "Bearer ", "Basic a-2", "a-2", "Bearer A-2"] {
            assert_eq!(ask(wrong), Err(Code::Unauthenticated), "{wrong}");
        }
        assert!(who(&HeaderMap::new(), &admins).is_err());
        assert!(who(&HeaderMap::new(), &[]).is_err());
    }
}
