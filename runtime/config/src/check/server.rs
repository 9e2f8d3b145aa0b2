//! `[server]`, `[store]` and `[telemetry]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use spillgate_model::units::{ByteSize, show_duration};

use crate::keys::{Kind, Section, server::ROOT};
use crate::plan::ServerPlan;
use crate::raw::printable;
use crate::written::Table;

use super::Checker;
use super::roots::Roots;
use super::url;

/// The declared section of that key of the server file.
fn declared(name: &str) -> &'static Section {
    match ROOT.find(name).map(|key| &key.kind) {
        Some(Kind::Table(section) | Kind::Named(section)) => section,
        _ => &ROOT,
    }
}

pub(crate) fn server(checker: &mut Checker<'_>, roots: &Roots) -> ServerPlan {
    let unwritten = |name| Table::empty(declared(name), roots.place.clone());
    let (no_server, no_store, no_telemetry) = (unwritten("server"), unwritten("store"), unwritten("telemetry"));
    let server = roots.section("server").unwrap_or(&no_server);
    let store = roots.section("store").unwrap_or(&no_store);
    let telemetry = roots.section("telemetry").unwrap_or(&no_telemetry);

    let (memory, cache) = (server.size("memory"), server.size("cache"));
    let (disk_limit, disk_reserve) = (store.size("disk_limit"), store.size("disk_reserve"));
    let shutdown_grace = server.time("shutdown_grace");
    checker.limit("server", "server.memory", &memory, ByteSize(memory.value).to_string());
    checker.limit("server", "server.cache", &cache, ByteSize(cache.value).to_string());
    checker.limit("server", "server.shutdown_grace", &shutdown_grace, show_duration(shutdown_grace.value));
    checker.limit("server", "store.disk_limit", &disk_limit, ByteSize(disk_limit.value).to_string());
    checker.limit("server", "store.disk_reserve", &disk_reserve, ByteSize(disk_reserve.value).to_string());
    let (listen, admin_listen) = (address(server, "listen"), address(server, "admin_listen"));
    if listen == admin_listen && listen.port() != 0 {
        checker
            .faults
            .add(&server.place_of("admin_listen"), format!("`listen` is {listen} as well: callers and operators have a listener each"));
    }
    ServerPlan {
        listen,
        admin_listen,
        data_dir: path(server, "data_dir"),
        flows: path(server, "flows"),
        memory: memory.into_limit(),
        http_hosts: http_hosts(checker, server),
        shutdown_grace: shutdown_grace.value,
        disk_limit: disk_limit.value,
        disk_reserve: disk_reserve.value,
        otlp: otlp(checker, telemetry),
        cache: cache.value,
    }
}

fn address(server: &Table, name: &str) -> SocketAddr {
    // The decoder took the text only because it is an address.
    server.text(name).value.parse().unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn path(server: &Table, name: &str) -> PathBuf {
    server.place.folder().join(server.text(name).value)
}

fn http_hosts(checker: &mut Checker<'_>, server: &Table) -> Vec<String> {
    let mut hosts = Vec::new();
    for host in server.texts("http_hosts") {
        let sound =
            host.value.rsplit_once(':').is_some_and(|(name, port)| url::is_host(name) && port.parse::<u16>().is_ok_and(|port| port > 0));
        match &host.place {
            Some(place) if !sound => {
                checker
                    .faults
                    .add(place, format!("expected \"host:port\" such as \"geo.example:443\", found \"{}\"", printable(&host.value)));
            }
            _ => hosts.push(host.value.to_ascii_lowercase()),
        }
    }
    hosts
}

fn otlp(checker: &mut Checker<'_>, telemetry: &Table) -> Option<String> {
    let written = telemetry.located("otlp")?;
    if let Err(message) = url::read(&written.value) {
        checker.faults.add(&written.place, message);
    }
    Some(written.value)
}
