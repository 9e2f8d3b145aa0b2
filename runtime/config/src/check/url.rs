//! Addresses of services: fixed scheme, host and port, no user, nothing from a caller.

use crate::raw::printable;

/// `host:port` of an address, in lower case.
pub(crate) fn read(text: &str) -> Result<String, String> {
    let refused = |why: &str| format!("expected an address such as \"https://geo.example/path\", found \"{}\": {why}", printable(text));
    let (scheme, rest) = text.split_once("://").ok_or_else(|| refused("no `://`"))?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(refused("the scheme is http or https")),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if authority.contains('@') {
        return Err("an address carries no user or password: use a header with a secret".into());
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().map_err(|_| refused("the port is no number"))?),
        _ => (authority, default_port),
    };
    if !is_host(host) || port == 0 {
        return Err(refused("no host"));
    }
    let sound = rest[authority.len()..].bytes().all(|byte| byte.is_ascii_graphic() && !b"{}<>\"\\^`|#".contains(&byte));
    if !sound {
        return Err(refused("the path holds letters that must be percent-encoded"));
    }
    Ok(format!("{}:{port}", host.to_ascii_lowercase()))
}

/// A host name, an IPv4 address, or an IPv6 address in brackets.
pub(crate) fn is_host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}
