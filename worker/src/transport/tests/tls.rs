//! The same over TLS, with a certificate made here: who is trusted, and both protocols that ALPN may choose.

use super::*;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One DER element.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let mut out = match content.len() {
        0..128 => vec![tag, length[1]],
        128..256 => vec![tag, 0x81, length[1]],
        _ => vec![tag, 0x82, length[0], length[1]],
    };
    out.extend(content);
    out
}

/// A self-signed Ed25519 certificate (RFC 5280, RFC 8410) for one name, and its key.
fn certificate(name: &str) -> (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>) {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let algorithm = der(0x30, &[&der(0x06, &[&[0x2b, 0x65, 0x70]])]);
    let common_name = der(0x30, &[&der(0x06, &[&[0x55, 0x04, 0x03]]), &der(0x0c, &[b"test"])]);
    let subject = der(0x30, &[&der(0x31, &[&common_name])]);
    let validity = der(0x30, &[&der(0x17, &[b"200101000000Z"]), &der(0x17, &[b"491231235959Z"])]);
    let public = der(0x30, &[&algorithm, &der(0x03, &[&[0], key.public_key().as_ref()])]);
    let names = der(0x04, &[&der(0x30, &[&der(0x82, &[name.as_bytes()])])]);
    let alternative = der(0x30, &[&der(0x06, &[&[0x55, 0x1d, 0x11]]), &names]);
    let extensions = der(0xa3, &[&der(0x30, &[&alternative])]);
    let version = der(0xa0, &[&[2, 1, 2]]);
    let body = der(0x30, &[&version, &[2, 1, 1], &algorithm, &subject, &validity, &subject, &public, &extensions]);
    let signature = key.sign(&body);
    let whole = der(0x30, &[&body, &algorithm, &der(0x03, &[&[0], signature.as_ref()])]);
    (CertificateDer::from(whole), PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec()))
}

/// Answers every request with an empty 200, in the protocol that was agreed on; tells what it was.
async fn tls_server(
    name: &str,
    protocols: &[&str],
) -> (u16, CertificateDer<'static>, tokio::task::JoinHandle<Vec<u8>>) {
    let (root, key) = certificate(name);
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], key.into())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await else {
            return b"no handshake".to_vec();
        };
        let agreed = stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec();
        let mut first = vec![0; 16 << 10];
        let length = stream.read(&mut first).await.unwrap();
        if agreed == b"h2" {
            assert!(first[..length].starts_with(b"PRI * HTTP/2.0"));
            // SETTINGS, then HEADERS of stream 1 with END_STREAM and END_HEADERS, `:status: 200` (RFC 7541, index 8).
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]).await.unwrap();
        } else {
            assert!(first[..length].starts_with(b"GET /v1/x HTTP/1.1\r\n"));
            stream.write_all(&answer("200 OK", &[], "")).await.unwrap();
        }
        while stream.read(&mut first).await.is_ok_and(|length| length > 0) {}
        agreed
    });
    (port, root, task)
}

fn kit(port: u16, roots: Vec<CertificateDer<'static>>) -> Kit {
    let table = HashMap::from([("vendor.test", vec!["127.0.0.1".parse().unwrap()])]);
    Setup::at(&format!("https://vendor.test:{port}"))
        .with(|setup| {
            setup.names = Arc::new(Names { table, asked: AtomicUsize::new(0) });
            setup.roots = roots;
        })
        .build()
}

#[tokio::test]
async fn both_protocols_are_spoken_to_a_trusted_host() {
    for (offered, agreed) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "http/1.1"), (&[], "")] {
        for paid in [true, false] {
            let (port, root, server) = tls_server("vendor.test", offered).await;
            let kit = kit(port, vec![root]);
            let mut call = Call::get("poll", "/v1/x");
            call.paid = paid;
            assert_eq!(kit.call(call).await.unwrap().status, 200, "{offered:?}");
            drop(kit);
            assert_eq!(server.await.unwrap(), agreed.as_bytes(), "{offered:?}");
        }
    }
}

#[tokio::test]
async fn an_untrusted_or_misnamed_certificate_means_nothing_was_sent() {
    for (name, trusted, word) in [("vendor.test", false, "UnknownIssuer"), ("other.test", true, "not valid for name")] {
        let (port, root, server) = tls_server(name, &["h2"]).await;
        let kit = kit(port, if trusted { vec![root] } else { Vec::new() });
        let failure = kit.call(Call::get("start", "/v1/x").paid()).await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.retry, failure.unsent),
            (FailureKind::Network, Retry::Backoff, true),
            "{failure}"
        );
        assert!(failure.message.contains(word), "{failure}");
        assert_eq!(server.await.unwrap(), b"no handshake");
    }
}
