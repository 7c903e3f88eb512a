package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// An Authority issues the certificates of a job, for sites without an authority of their own.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// The files of an authority in its directory.
const (
	authorityCert = "ca.pem"
	authorityKey  = "ca-key.pem"
)

// NewAuthority makes an authority and writes it to dir, which must not hold one already.
func NewAuthority(dir, name string, life time.Duration) (*Authority, error) {
	template, err := newTemplate(name, life)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	a := new(Authority)
	if err := a.sign(template, filepath.Join(dir, authorityCert), filepath.Join(dir, authorityKey)); err != nil {
		return nil, err
	}
	return OpenAuthority(dir)
}

// OpenAuthority reads the authority that [NewAuthority] wrote to dir.
func OpenAuthority(dir string) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, authorityCert))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, authorityKey))
	if err != nil {
		return nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("authority in %s: not PEM", dir)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("authority in %s: %w", dir, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("authority in %s: %w", dir, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("authority in %s: key and certificate do not belong together", dir)
	}
	return &Authority{cert: cert, key: key}, nil
}

// A Subject says whom a certificate is for.
type Subject struct {
	Name  string
	Hosts []string // DNS names and IP addresses
	URIs  []string
	Life  time.Duration
}

// Issue writes NAME.pem and NAME-key.pem to dir, good for both sides of a connection. It refuses to
// replace a key that is there.
func (a *Authority) Issue(dir string, s Subject) error {
	if s.Name == "" || s.Name != filepath.Base(s.Name) {
		return fmt.Errorf("name %q must be a plain file name", s.Name)
	}
	template, err := newTemplate(s.Name, s.Life)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	for _, text := range s.URIs {
		u, err := url.Parse(text)
		if err != nil || !u.IsAbs() {
			return fmt.Errorf("URI name %q: want an absolute URI", text)
		}
		template.URIs = append(template.URIs, u)
	}
	return a.sign(template, filepath.Join(dir, s.Name+".pem"), filepath.Join(dir, s.Name+"-key.pem"))
}

// sign writes a certificate with a new key. An authority without a certificate signs its own.
func (a *Authority) sign(template *x509.Certificate, certPath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	if err := writeKey(keyPath, key); err != nil {
		return err
	}
	return writePEM(certPath, "CERTIFICATE", der, 0o644)
}

func newTemplate(name string, life time.Duration) (*x509.Certificate, error) {
	if life <= 0 {
		return nil, errors.New("a certificate needs a positive lifetime")
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-5 * time.Minute), // clocks of hosts differ a little
		NotAfter:     now.Add(life),
	}, nil
}

// writeKey never replaces a key: what it protects would be lost with it.
func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s: %w; remove it to make a new one", path, os.ErrExist)
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

// writePEM replaces a file in one step: a reader sees the old content or the new one, never half of it.
func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it has been renamed
	err = errors.Join(
		pem.Encode(f, &pem.Block{Type: kind, Bytes: der}),
		f.Chmod(mode),
		f.Close(),
	)
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
