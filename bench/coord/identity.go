package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An identity is what servers and load show each other under mutual TLS: all of them the same
// certificate, which is its own root.
type identity struct {
	cert, key string // PEM files
	load      *tls.Config
}

// newIdentity writes the files of a fresh identity into a directory.
func newIdentity(dir string) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	id := &identity{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	if err := writePEM(id.cert, "CERTIFICATE", cert); err != nil {
		return nil, err
	}
	if err := writePEM(id.key, "PRIVATE KEY", private); err != nil {
		return nil, err
	}
	return id, id.trust()
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// config is how the load connects: in plain text without an identity.
func (id *identity) config() *tls.Config {
	if id == nil {
		return nil
	}
	return id.load
}

// trust makes the load's side of the identity from its files.
func (id *identity) trust() error {
	pair, err := tls.LoadX509KeyPair(id.cert, id.key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	id.load = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}
	return nil
}
