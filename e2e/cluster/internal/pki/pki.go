// Package pki makes the certificates and kubeconfigs of a cluster. They live as long as the cluster's folder.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A test cluster that is up for longer than this is started anew.
const life = 30 * 24 * time.Hour

// Identity is who a certificate speaks for; Hosts are names and addresses when it serves.
type Identity struct {
	File         string
	CommonName   string
	Organization string
	Hosts        []string
}

// Authority signs.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority writes ca.crt and ca.key into dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template("ramen-test-cluster")
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	authority := &Authority{dir: dir, cert: cert, key: key}
	return authority, authority.write("ca", der, key)
}

// Issue writes FILE.crt and FILE.key.
func (a *Authority) Issue(who Identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template(who.CommonName)
	if err != nil {
		return err
	}
	if who.Organization != "" {
		template.Subject.Organization = []string{who.Organization}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, host := range who.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return a.write(who.File, der, key)
}

// SigningPair writes FILE.key and FILE.pub: what service account tokens are signed with.
func (a *Authority) SigningPair(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := a.pem(file+".pub", "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return a.private(file+".key", key)
}

// Kubeconfig writes a kubeconfig for an issued identity, with everything inside, so that the file can be copied.
func (a *Authority) Kubeconfig(path, identity, server string) error {
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(a.dir, name)) }
	ca, err := read("ca.crt")
	if err != nil {
		return err
	}
	cert, err := read(identity + ".crt")
	if err != nil {
		return err
	}
	key, err := read(identity + ".key")
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: ramen
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: ramen
  context: {cluster: ramen, user: %s}
current-context: ramen
`, server, base64.StdEncoding.EncodeToString(ca), identity, base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key), identity)
	return os.WriteFile(path, []byte(text), 0o600)
}

func template(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-time.Hour), // a clock that is set back must not lock everyone out
		NotAfter:     now.Add(life),
	}, nil
}

func (a *Authority) write(file string, der []byte, key *ecdsa.PrivateKey) error {
	if err := a.pem(file+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return a.private(file+".key", key)
}

func (a *Authority) private(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return a.pem(file, "EC PRIVATE KEY", der, 0o600)
}

func (a *Authority) pem(file, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
