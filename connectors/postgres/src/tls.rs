//! TLS towards the server, over rustls with *ring*.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// With roots: certificate and name are proven. Without: the link is private against listeners only, as with libpq's `require`.
pub(crate) fn connector(roots: Option<&str>) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = match roots {
        Some(path) => builder.with_root_certificates(read(path)?).with_no_client_auth(),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unproven(provider))).with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn read(path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| format!("{path}: {error}"))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("{path}: {error}"))?;
        roots.add(certificate).map_err(|error| format!("{path}: {error}"))?;
    }
    if roots.is_empty() { Err(format!("{path}: no certificate in it")) } else { Ok(roots) }
}

/// Takes any certificate; whoever holds it must still own its key.
#[derive(Debug)]
struct Unproven(Arc<CryptoProvider>);

impl ServerCertVerifier for Unproven {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
