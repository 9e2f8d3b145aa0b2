//! The conformance suite over an embedded file.

mod support;

async fn fixture() -> support::File {
    support::File::new()
}

spillgate_connector::conformance_suite!(fixture);
