//! A connection string as proven: where to go, who logs in, which TLS.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use spillgate_connector::Access;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{PostgresOptions, tls};

/// Settings no session could be opened with. None of them shows the connection string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// It is in neither form.
    #[error("expected a URL (postgres://user:password@host:5432/name) or key=value pairs; {0}")]
    Malformed(String),
    /// It names no host.
    #[error("the connection names no host")]
    NoHost,
    /// Hosts and ports do not go together.
    #[error("the connection names another number of ports or addresses than of hosts")]
    Counts,
    /// `sslmode` is none we know.
    #[error("expected sslmode disable, prefer, require or verify-full, found {0:?}")]
    SslMode(String),
    /// `verify-full` needs to know whom to trust.
    #[error("sslmode=verify-full needs sslrootcert, the PEM file of the roots to trust")]
    NoRoots,
    /// The file of `sslrootcert`.
    #[error("sslrootcert: {0}")]
    Roots(String),
    /// An option that libpq knows and we do not.
    #[error("{0} is not supported")]
    NotSupported(&'static str),
}

/// One place to try.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Name(String, u16),
    Address(IpAddr, u16),
    Socket(PathBuf),
}

pub(crate) struct Settings {
    read: Config,
    write: Config,
    /// In the order they are tried, each with the name its certificate must bear.
    pub(crate) places: Vec<(Place, String)>,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) connect_timeout: Option<Duration>,
}

impl Settings {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self, SettingsError> {
        let (connection, ssl) = Ssl::taken_out_of(options.connection.expose());
        let mut config = Config::from_str(&connection).map_err(|error| SettingsError::Malformed(reason(&error)))?;
        let tls = ssl.apply(&mut config)?;
        if config.get_target_session_attrs() != TargetSessionAttrs::Any {
            return Err(SettingsError::NotSupported("target_session_attrs"));
        }
        if config.get_load_balance_hosts() != LoadBalanceHosts::Disable {
            return Err(SettingsError::NotSupported("load_balance_hosts"));
        }
        if config.get_ssl_negotiation() != SslNegotiation::Postgres {
            return Err(SettingsError::NotSupported("sslnegotiation"));
        }
        if config.get_application_name().is_none() {
            config.application_name(&*options.application_name);
        }
        let places = places(&config)?;
        let connect_timeout = config.get_connect_timeout().copied();
        let told = config.get_options().unwrap_or_default().to_owned();
        let limited = format!("{told} -c statement_timeout={}", options.statement_timeout.as_millis().max(1));
        let mut read = config.clone();
        read.options(format!("{limited} -c default_transaction_read_only=on"));
        config.options(limited);
        Ok(Settings { read, write: config, places, tls, connect_timeout })
    }
    pub(crate) fn config(&self, access: Access) -> &Config {
        match access {
            Access::ReadOnly => &self.read,
            Access::ReadWrite => &self.write,
        }
    }
}

/// What the driver says is wrong; it names keys, never values.
fn reason(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    // "invalid value for option `x`" and "unknown option `x`" are safe; anything else might quote what it read.
    if cause.starts_with("invalid value for option") || cause.starts_with("unknown option") { cause } else { "it could not be read".into() }
}

fn places(config: &Config) -> Result<Vec<(Place, String)>, SettingsError> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if count == 0 {
        return Err(SettingsError::NoHost);
    }
    let fits = |length: usize| length == 0 || length == count;
    if !fits(hosts.len()) || !fits(addresses.len()) || (ports.len() > 1 && ports.len() != count) {
        return Err(SettingsError::Counts);
    }
    let place = |index: usize| {
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
        match (hosts.get(index), addresses.get(index)) {
            (Some(Host::Tcp(name)), Some(address)) => (Place::Address(*address, port), name.clone()),
            (_, Some(address)) => (Place::Address(*address, port), address.to_string()),
            (Some(Host::Unix(folder)), None) => (Place::Socket(folder.join(format!(".s.PGSQL.{port}"))), String::new()),
            (Some(Host::Tcp(name)), None) => (Place::Name(name.clone(), port), name.clone()),
            (None, None) => (Place::Name("localhost".into(), port), "localhost".into()),
        }
    };
    Ok((0..count).map(place).collect())
}

/// `sslmode` and `sslrootcert`, which the driver does not know in full.
#[derive(Default)]
struct Ssl {
    mode: Option<String>,
    roots: Option<String>,
}

impl Ssl {
    /// The connection string without them, in whichever form it is.
    fn taken_out_of(connection: &str) -> (String, Ssl) {
        let mut ssl = Ssl::default();
        let rest = if connection.contains("://") { ssl.without_keys_in_url(connection) } else { ssl.without_keys_in_pairs(connection) };
        (rest, ssl)
    }

    fn takes(&mut self, key: &str, value: &str) -> bool {
        match key {
            "sslmode" => self.mode = Some(value.into()),
            "sslrootcert" => self.roots = Some(value.into()),
            _ => return false,
        }
        true
    }

    fn without_keys_in_url(&mut self, url: &str) -> String {
        let Some((head, query)) = url.split_once('?') else { return url.into() };
        let kept: Vec<&str> =
            query.split('&').filter(|pair| pair.split_once('=').is_none_or(|(key, value)| !self.takes(key, &decoded(value)))).collect();
        if kept.is_empty() { head.into() } else { format!("{head}?{}", kept.join("&")) }
    }

    fn without_keys_in_pairs(&mut self, text: &str) -> String {
        let mut kept = String::new();
        let mut rest = text.trim_start();
        while let Some((key, after)) = rest.split_once('=') {
            let value = after.trim_start();
            let length = value_length(value);
            let plain = value[..length].trim_matches('\'').replace("\\'", "'").replace("\\\\", "\\");
            if !self.takes(key.trim(), &plain) {
                kept.push_str(&format!("{}={} ", key.trim(), &value[..length]));
            }
            rest = value[length..].trim_start();
        }
        kept + rest
    }

    fn apply(self, config: &mut Config) -> Result<MakeRustlsConnect, SettingsError> {
        let mode = match self.mode.as_deref() {
            None | Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require" | "verify-full") => SslMode::Require,
            Some(other) => return Err(SettingsError::SslMode(other.into())),
        };
        if self.mode.as_deref() == Some("verify-full") && self.roots.is_none() {
            return Err(SettingsError::NoRoots);
        }
        // Roots that are only asked for when the server happens to offer TLS would prove nothing.
        config.ssl_mode(if self.roots.is_some() && mode == SslMode::Prefer { SslMode::Require } else { mode });
        tls::connector(self.roots.as_deref()).map_err(SettingsError::Roots)
    }
}

/// Bytes of one value, quotes included.
fn value_length(text: &str) -> usize {
    let quoted = text.starts_with('\'');
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(usize::from(quoted)) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' if quoted => return at + 1,
            letter if !quoted && letter.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex =
            (*first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(hex.unwrap_or(*first));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use spillgate_model::Secret;

    use super::*;

    fn settings(connection: &str) -> Result<Settings, SettingsError> {
        Settings::new(&PostgresOptions {
            connection: Secret::new(connection),
            on_connect: vec![],
            statement_timeout: Duration::from_secs(5),
            application_name: "spillgate".into(),
        })
    }

    #[test]
    fn both_forms_are_read_and_tls_keys_taken_out() {
        for connection in [
            "postgres://fleet:pa%3Ass@db.example:6000/trucks?sslmode=require&application_name=x",
            "host=db.example port=6000 user=fleet password='pa:ss' dbname=trucks sslmode = require application_name=x",
        ] {
            let settings = settings(connection).expect("good settings");
            let config = settings.config(Access::ReadOnly);
            assert_eq!(
                (config.get_user(), config.get_dbname(), config.get_password()),
                (Some("fleet"), Some("trucks"), Some(&b"pa:ss"[..]))
            );
            assert_eq!(config.get_ssl_mode(), SslMode::Require);
            assert_eq!(config.get_application_name(), Some("x"));
            assert!(matches!(&settings.places[..], [(Place::Name(name, 6000), _)] if name == "db.example"));
            assert!(config.get_options().is_some_and(|options| options.contains("read_only=on") && options.contains("timeout=5000")));
            assert!(!settings.config(Access::ReadWrite).get_options().is_some_and(|options| options.contains("read_only")));
        }
    }

    #[test]
    fn c10_settings_that_could_never_work_are_faults_that_tell_no_secret() {
        for (connection, said) in [
            ("postgres://u:open-sesame@h/d?sslmode=verify-full", "sslrootcert"),
            ("postgres://u:open-sesame@h/d?sslmode=perhaps", "perhaps"),
            ("postgres://u:open-sesame@h/d?sslmode=require&sslrootcert=/not/there.pem", "sslrootcert"),
            ("postgres://u:open-sesame@h/d?colour=open-sesame", "colour"),
            ("postgres://u:open-sesame@h:port/d", "URL"),
            ("open-sesame", "URL"),
            ("password=open-sesame user=x", "no host"),
            ("password='open-sesame", "URL"),
            ("host=a,b port=1,2,3 password=open-sesame", "number"),
            ("host=a target_session_attrs=read-write password=open-sesame", "target_session_attrs"),
        ] {
            let Err(error) = settings(connection) else { panic!("{connection} is no good") };
            assert!(error.to_string().contains(said), "{connection}: {error}");
            assert!(!format!("{error} {error:?}").contains("open-sesame"), "{connection}: {error}");
        }
    }
}
