//! Keys that sign tokens, one kind for each algorithm.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// A key that opens nothing but what these tests start: `ring` makes none of its kind.
const RSA: &str = include_str!("oidc/rsa-2048.pem");

enum Pair {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
}

/// A key that signs.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pub(crate) algorithm: String,
    pair: Pair,
}

fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn ec(algorithm: &'static EcdsaSigningAlgorithm) -> Pair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    Pair::Ec(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
}

fn rsa(encoding: &'static dyn RsaEncoding) -> Pair {
    let lines = RSA.lines().filter(|line| !line.starts_with("-----"));
    let document = STANDARD.decode(lines.collect::<String>()).unwrap();
    Pair::Rsa(RsaKeyPair::from_pkcs8(&document).unwrap(), encoding)
}

impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        Self::of(kid, "ES256")
    }

    /// One for an algorithm. Those of RSA have one and the same key.
    pub(crate) fn of(kid: &str, algorithm: &str) -> Self {
        let pair = match algorithm {
            "ES256" => ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
            "EdDSA" => {
                let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
                Pair::Ed(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
            }
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            other => panic!("nobody signs with {other}"),
        };
        Self {
            kid: kid.to_owned(),
            algorithm: algorithm.to_owned(),
            pair,
        }
    }

    /// As an issuer shows it.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Ec(pair) => {
                // After the octet that says that both coordinates follow.
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = format!("P-{}", x.len() * 8);
                json!({"kty": "EC", "crv": curve, "x": part(x), "y": part(y)})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": part(pair.public_key())})
            }
            Pair::Rsa(pair, _) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": part(public.n), "e": part(public.e)})
            }
        };
        jwk["use"] = "sig".into();
        jwk["alg"] = self.algorithm.clone().into();
        jwk["kid"] = self.kid.clone().into();
        jwk
    }

    /// The same without the algorithm that it is for.
    pub(crate) fn jwk_for_any(&self) -> Value {
        let mut jwk = self.jwk();
        jwk.as_object_mut().unwrap().remove("alg");
        jwk
    }

    /// The header of its tokens.
    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm, "typ": "at+jwt", "kid": self.kid})
    }

    /// A token with this header and these claims.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(pair) => {
                let signature = pair.sign(&random, message.as_bytes()).unwrap();
                signature.as_ref().to_vec()
            }
            Pair::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message.as_bytes(), &mut signature)
                    .unwrap();
                signature
            }
        };
        format!("{message}.{}", part(signature))
    }
}

/// What is signed of a token.
pub(crate) fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", part(header.to_string()), part(claims.to_string()))
}

/// A token that is signed with a secret.
pub(crate) fn hmac(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = message(header, claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let tag = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", part(tag))
}
