// Package mtls makes TLS configurations in which both sides show a certificate.
//
// [Files] names the PEM files of one side and, optionally, a prefix that a URI name of the peer's
// certificate must have. [Load] reads them; the [Identity] it returns gives a tls.Config for the
// server's side or the client's, and each new handshake uses the files as they are then: a renewed
// certificate needs no restart, and open connections go on.
//
// Without a prefix a server takes any certificate that its roots vouch for, and a client checks the
// host name it dialled. With a prefix both accept exactly the peers one of whose URI names begins
// with it; host names no longer matter.
//
// Read mtls.go first.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/wire/conn"
)

// Files names what one side needs. Cert, Key and CA are required.
type Files struct {
	Cert string // certificate chain, leaf first
	Key  string // private key of the leaf
	CA   string // roots that peers must chain to

	// PeerPrefix, if not empty, must end in a slash: spiffe://example.org would also accept
	// spiffe://example.org.evil/ (A-TLS-3).
	PeerPrefix string

	// Every bounds how long a change of the files may go unnoticed. Zero means a minute. Files are
	// looked at when a handshake begins, not by a clock.
	Every time.Duration
}

// IsZero says whether no TLS is wanted.
func (f Files) IsZero() bool { return f.Cert == "" && f.Key == "" && f.CA == "" && f.PeerPrefix == "" }

// ErrPeer is wrapped by every refusal of a peer because of its names.
var ErrPeer = errors.New("peer is not one we accept")

// An Identity is one side of connections. It may be used by several goroutines.
type Identity struct {
	files Files

	mu struct {
		sync.Mutex
		checked time.Time
		stamp   stamp
		loaded
	}
}

type loaded struct {
	cert  *tls.Certificate
	roots *x509.CertPool
}

// Load reads the files and checks that they fit together.
func Load(f Files) (*Identity, error) {
	if f.PeerPrefix != "" && !strings.HasSuffix(f.PeerPrefix, "/") {
		return nil, fmt.Errorf("peer prefix %q must end in a slash", f.PeerPrefix)
	}
	if f.Every == 0 {
		f.Every = time.Minute
	}
	id := &Identity{files: f}
	if _, err := id.current(); err != nil {
		return nil, err
	}
	return id, nil
}

// Reload reads the files at once instead of when the next handshake finds it time to. Where that
// fails the last good content stays in use.
func (id *Identity) Reload() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.mu.stamp = stamp{}
	return id.refresh()
}

// Server is the configuration of the side that is dialled. Clients must show a certificate.
func (id *Identity) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now, err := id.current()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:       tls.VersionTLS13,
				NextProtos:       []string{"h2"},
				Certificates:     []tls.Certificate{*now.cert},
				ClientAuth:       tls.RequireAndVerifyClientCert,
				ClientCAs:        now.roots,
				VerifyConnection: id.checkPeer,
			}, nil
		},
	}
}

// Browsers is the configuration of a side that people reach with a browser: it shows the certificate, and wants none.
func (id *Identity) Browsers() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			now, err := id.current()
			return now.cert, err
		},
	}
}

// Hosts are the names and addresses of hosts that the certificate is for.
func (id *Identity) Hosts() ([]string, error) {
	now, err := id.current()
	if err != nil {
		return nil, err
	}
	leaf := now.cert.Leaf
	all := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all, nil
}

// Client is the configuration of the side that dials host, a name or an address without a port.
func (id *Identity) Client(host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		ServerName: host,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			now, err := id.current()
			return now.cert, err
		},
		// The roots may change between handshakes, and with a prefix the host name does not
		// matter: so the whole check is done in VerifyConnection, and nothing is left out.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			now, err := id.current()
			if err != nil {
				return err
			}
			return id.checkServer(cs, now.roots, host)
		},
	}
}

// checkServer verifies the chain and the name of a server.
func (id *Identity) checkServer(cs tls.ConnectionState, roots *x509.CertPool, host string) error {
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	if id.files.PeerPrefix == "" {
		opts.DNSName = host
	}
	for _, c := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := cs.PeerCertificates[0].Verify(opts); err != nil {
		return fmt.Errorf("server certificate: %w", err)
	}
	return id.checkPeer(cs)
}

// checkPeer applies the prefix to the URI names of the leaf; nothing else counts (A-TLS-6).
func (id *Identity) checkPeer(cs tls.ConnectionState) error {
	if id.files.PeerPrefix == "" {
		return nil
	}
	names := conn.URIs(cs.PeerCertificates[0])
	if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, id.files.PeerPrefix) }) {
		return nil
	}
	return fmt.Errorf("%w: want a URI name that begins with %q, certificate has %q", ErrPeer, id.files.PeerPrefix, names)
}

// current returns the files' content, read again where they changed. While a renewal is half
// written the last good content stays in use.
func (id *Identity) current() (loaded, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.mu.cert != nil && time.Since(id.mu.checked) < id.files.Every {
		return id.mu.loaded, nil
	}
	if err := id.refresh(); err != nil && id.mu.cert == nil {
		return loaded{}, err
	}
	return id.mu.loaded, nil
}

// refresh reads the files if they changed. mu must be held.
func (id *Identity) refresh() error {
	id.mu.checked = time.Now()
	s, err := id.files.stamp()
	if err != nil || s == id.mu.stamp {
		return err
	}
	fresh, err := id.files.read()
	if err != nil {
		return err
	}
	id.mu.loaded, id.mu.stamp = fresh, s
	return nil
}

// A stamp tells one content of the files from another without reading them.
type stamp [3]struct {
	modified time.Time
	size     int64
}

func (f Files) roles() [3]struct{ role, path string } {
	return [3]struct{ role, path string }{{"certificate", f.Cert}, {"private key", f.Key}, {"root CA", f.CA}}
}

func (f Files) stamp() (s stamp, err error) {
	for i, r := range f.roles() {
		if r.path == "" {
			return s, fmt.Errorf("%s file is not given", r.role)
		}
		info, err := os.Stat(r.path)
		if err != nil {
			return s, fmt.Errorf("%s file: %w", r.role, err)
		}
		s[i].modified, s[i].size = info.ModTime(), info.Size()
	}
	return s, nil
}

func (f Files) read() (loaded, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return loaded{}, fmt.Errorf("certificate %s with private key %s: %w", f.Cert, f.Key, err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return loaded{}, fmt.Errorf("root CA file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return loaded{}, fmt.Errorf("root CA file %s: no certificate in it", f.CA)
	}
	return loaded{cert: &cert, roots: roots}, nil
}
