//! What makes a client: what the URL says, what certificates there are, and what we want of every connection.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionInfo};

use super::{invalid, unusable};
use crate::LockError;

/// Certificates beside those of the system, in PEM form.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// Whom to trust, in place of those whom the system trusts.
    pub(super) roots: Option<Vec<u8>>,
    /// Who we are: a certificate with those that vouch for it, and its key.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// Makes a client whose connections answer without delay and notice their end: the crate's defaults leave Nagle's
    /// algorithm on, and a dead peer to the kernel's patience of minutes.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, LockError> {
        let mut tcp = info.tcp_settings().clone().set_nodelay(true);
        if tcp.keepalive().is_none() {
            let keepalive =
                TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
            tcp = tcp.set_keepalive(keepalive);
        }
        #[cfg(target_os = "linux")]
        if tcp.user_timeout().is_none() {
            tcp = tcp.set_user_timeout(Duration::from_secs(20));
        }
        self.open(info.set_tcp_settings(tcp))
    }

    /// Which of the builder's options was used, if one was.
    pub(super) fn option(&self) -> Option<&'static str> {
        let client = self.client.as_ref().map(|_| "client_certificate");
        self.roots.as_ref().map(|_| "root_certificates").or(client)
    }

    /// Where no certificate has a meaning, none may be given: whoever gives one relies on it.
    pub(super) fn none_for(&self, place: &str) -> Result<(), LockError> {
        let mend = "certificates are for a URL that begins with `rediss://` or `rediss-sentinel://`";
        self.option().map_or(Ok(()), |option| Err(invalid(option, format!("{place}; {mend}"))))
    }

    #[cfg(not(feature = "tls"))]
    fn open(&self, info: ConnectionInfo) -> Result<Client, LockError> {
        self.none_for("distlock was built without its feature `tls`")?;
        Client::open(info).map_err(|error| unusable(&error))
    }

    #[cfg(feature = "tls")]
    fn open(&self, info: ConnectionInfo) -> Result<Client, LockError> {
        if self.option().is_none() {
            return Client::open(info).map_err(|error| unusable(&error));
        }
        if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            self.none_for("the URL asks for no TLS")?;
        }
        self.check()?;
        let client_tls =
            self.client.clone().map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        let certificates = redis::TlsCertificates { client_tls, root_cert: self.roots.clone() };
        Client::build_with_tls(info, certificates).map_err(|error| unusable(&error))
    }
}

#[cfg(feature = "tls")]
mod check {
    use rustls::RootCertStore;
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::sign::CertifiedKey;

    use super::super::invalid;
    use super::Certificates;
    use crate::LockError;

    impl Certificates {
        /// Looks at what the `redis` crate would find out only when it connects, or not at all: that a text without
        /// certificates is no mistake of its.
        ///
        /// Nothing is quoted here, since a private key may stand where it does not belong.
        pub(super) fn check(&self) -> Result<(), LockError> {
            if let Some(pem) = &self.roots {
                let mut store = RootCertStore::empty();
                for certificate in certificates("root_certificates", pem)? {
                    store.add(certificate).map_err(|error| {
                        invalid("root_certificates", format!("one of them is no certificate to trust: {error}"))
                    })?;
                }
            }
            if let Some((pem, key)) = &self.client {
                let of_client = |reason: String| invalid("client_certificate", reason);
                let chain = certificates("client_certificate", pem)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| of_client("the key is no private key in PEM form".to_owned()))?;
                if let Some(provider) = CryptoProvider::get_default() {
                    CertifiedKey::from_der(chain, key, provider)
                        .map_err(|error| of_client(format!("certificate and key can't be used together: {error}")))?;
                }
            }
            Ok(())
        }
    }

    fn certificates(option: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, LockError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match found {
            Ok(found) if found.is_empty() => Err(invalid(option, "there is no certificate in PEM form in it")),
            Ok(found) => Ok(found),
            Err(_) => Err(invalid(option, "it is damaged: not all of it is in PEM form")),
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option().map_or("None", |_| "Some(..)"))
    }
}
