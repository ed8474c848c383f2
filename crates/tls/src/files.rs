//! Certificates, keys and authorities from PEM files, and the rules made of them.

use forebay_units::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why certificates cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsFilesError {
    /// A file cannot be read, or holds no PEM of that kind.
    #[error("`{}` holds no usable {what}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The files do not go together.
    #[error("certificate `{}` cannot be used with key `{}`", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// No peer could be judged by these authorities.
    #[error("the authorities in `{}` cannot be used: {reason}", path.display())]
    Authorities {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(path: &Path, what: &'static str, error: &PemError) -> TlsFilesError {
    let reason = match error {
        PemError::NoItemsFound => "there is none in it".to_owned(),
        PemError::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    TlsFilesError::File { path: path.to_owned(), what, reason }
}

/// Longer files are not read (ours): all authorities of a system are some 200 KiB, and a device may have no end.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn contents(path: &Path, what: &'static str) -> Result<Vec<u8>, TlsFilesError> {
    let mut contents = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut contents));
    read.map_err(|error| unusable(path, what, &PemError::Io(error)))?;
    if contents.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("it is longer than {}", Bytes(FILE_BYTES_MAX));
        return Err(TlsFilesError::File { path: path.to_owned(), what, reason });
    }
    Ok(contents)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    const WHAT: &str = "certificate";
    let chain: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(&contents(path, WHAT)?).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(unusable(path, WHAT, &PemError::NoItemsFound)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unusable(path, WHAT, &error)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFilesError> {
    const WHAT: &str = "private key";
    PrivateKeyDer::from_pem_slice(&contents(path, WHAT)?).map_err(|error| unusable(path, WHAT, &error))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsFilesError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| TlsFilesError::Authorities {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(store)
}

/// What a server shows, and whom it lets in.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    verifies_clients: bool,
}

impl ServerTls {
    /// Reads a certificate (its chain behind it) and its key; with `client_authorities`, only clients with a certificate from one of
    /// them are let in.
    ///
    /// # Errors
    /// [`TlsFilesError`], naming the file.
    pub fn load(
        certificate: &Path,
        key_file: &Path,
        client_authorities: Option<&Path>,
    ) -> Result<ServerTls, TlsFilesError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has ciphers of TLS 1.3");
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|error| TlsFilesError::Authorities {
                        path: path.to_owned(),
                        reason: error.to_string(),
                    })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config =
            builder.with_single_cert(certificates(certificate)?, key(key_file)?).map_err(|source| {
                TlsFilesError::Pair { certificate: certificate.to_owned(), key: key_file.to_owned(), source }
            })?;
        Ok(ServerTls { config: Arc::new(config), verifies_clients: client_authorities.is_some() })
    }

    /// Whether clients must show a certificate.
    pub fn verifies_clients(&self) -> bool {
        self.verifies_clients
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("verifies_clients", &self.verifies_clients).finish_non_exhaustive()
    }
}

/// Whom a client trusts, and what it shows.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Trusts servers with a certificate from one of `authorities` that names them; any server, whoever it is, if there are none.
    /// `identity` is a certificate and its key, for servers that ask for one.
    ///
    /// # Errors
    /// [`TlsFilesError`], naming the file.
    pub fn load(
        server_authorities: Option<&Path>,
        identity: Option<(&Path, &Path)>,
    ) -> Result<ClientTls, TlsFilesError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has ciphers of TLS 1.3");
        let builder = match server_authorities {
            Some(path) => builder.with_root_certificates(authorities(path)?),
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider()))),
        };
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key_file)) => builder
                .with_client_auth_cert(certificates(certificate)?, key(key_file)?)
                .map_err(|source| TlsFilesError::Pair {
                    certificate: certificate.to_owned(),
                    key: key_file.to_owned(),
                    source,
                })?,
        };
        Ok(ClientTls { config: Arc::new(config) })
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

/// Believes every certificate: whoever listens is kept out, whoever sits in between is not.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
