//! Signatures, checked by the cryptography that TLS uses here already. Tokens are never signed, and secrets shared with
//! an issuer (HS256 and the like) are no keys.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as sig;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes the library check signatures with it. A second time changes nothing.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the library's signature")]
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

/// How an algorithm checks.
#[derive(Clone, Copy)]
enum Check {
    Rsa(&'static sig::RsaParameters),
    Bytes(&'static dyn sig::VerificationAlgorithm),
}

/// A key that checks with one algorithm.
struct Checker {
    algorithm: Algorithm,
    check: Check,
    key: DecodingKey,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the library's signature")]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let (family, check) = match algorithm {
        Algorithm::RS256 => (
            AlgorithmFamily::Rsa,
            Check::Rsa(&sig::RSA_PKCS1_2048_8192_SHA256),
        ),
        Algorithm::RS384 => (
            AlgorithmFamily::Rsa,
            Check::Rsa(&sig::RSA_PKCS1_2048_8192_SHA384),
        ),
        Algorithm::RS512 => (
            AlgorithmFamily::Rsa,
            Check::Rsa(&sig::RSA_PKCS1_2048_8192_SHA512),
        ),
        Algorithm::PS256 => (
            AlgorithmFamily::Rsa,
            Check::Rsa(&sig::RSA_PSS_2048_8192_SHA256),
        ),
        Algorithm::PS384 => (
            AlgorithmFamily::Rsa,
            Check::Rsa(&sig::RSA_PSS_2048_8192_SHA384),
        ),
        Algorithm::PS512 => (
            AlgorithmFamily::Rsa,
            Check::Rsa(&sig::RSA_PSS_2048_8192_SHA512),
        ),
        Algorithm::ES256 => (
            AlgorithmFamily::Ec,
            Check::Bytes(&sig::ECDSA_P256_SHA256_FIXED),
        ),
        Algorithm::ES384 => (
            AlgorithmFamily::Ec,
            Check::Bytes(&sig::ECDSA_P384_SHA384_FIXED),
        ),
        Algorithm::EdDSA => (AlgorithmFamily::Ed, Check::Bytes(&sig::ED25519)),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    if key.family() != family {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(Checker {
        algorithm: *algorithm,
        check,
        key: key.clone(),
    }))
}

impl JwtVerifier for Checker {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Checker {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let checked = match (self.check, self.key.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                sig::RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Check::Bytes(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                sig::UnparsedPublicKey::new(algorithm, key).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        checked.map_err(|_| signature::Error::new())
    }
}
