// Package member runs an etcd member inside this process, so that three serry processes can share a
// journal without an etcd that an operator has to run first.
//
// [Start] takes the names and addresses of all members, the same on each of them, and a folder of its
// own. The first start of a cluster waits until a majority is there. A member that was killed comes
// back with its folder, whatever happened meanwhile. One that has lost its folder must not come back
// as if nothing had happened, because it has forgotten what it promised the others: see [Replace].
//
// The member looks after itself: the leader of the journal drops history after each snapshot, and every
// member returns free space to the disk when there is much of it, one member at a time, because a member
// stands still meanwhile.
//
// Other members connect to its peer address, over TLS with certificates of both sides where [Config.TLS]
// names them; without, every process that reaches the address can read and write the journal. For etcdctl there is
// a socket in the folder, which only its owner can open:
//
//	etcdctl --endpoints unix:DIR/client.sock endpoint status
package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/internal/zaplog"
)

// A Config lists the members, and says which one this is.
type Config struct {
	// Name is the name of this member, one of Peers.
	Name string
	// Peers are all members: name to host:port, where the others reach it.
	Peers map[string]string
	// Address is where clients reach the server of this member; the others tell it to people. It may be empty.
	Address string
	// Dir is the folder of this member.
	Dir string
	// PeerListen is the address to listen on; by default that of Peers, or all interfaces where that is
	// a host name.
	PeerListen string
	// Join says that the others run already and have made room for this one, see [Replace]. A member that
	// finds its folder comes back in any case.
	Join bool
	// Cluster tells clusters apart that could meet by a wrong address.
	Cluster string
	// TLS, or nil, are the files for connections between members.
	TLS *TLS
	// QuotaBytes is the limit of the database, 4 GiB by default.
	QuotaBytes int64
	// Log, or nil, gets warnings and errors of etcd.
	Log *slog.Logger
}

// TLS are files in PEM: a certificate, for serving and for calling, its key, and the authorities whose
// certificates others must have.
type TLS struct {
	Cert, Key, CA string
}

// backendInterval is how often a member writes what it has applied to its database. Nothing is lost if it dies in between,
// because it applies its log again from there; a quota is passed by what comes until then. Each such write holds up what is
// to be applied next, for two syncs of the disk, and the log of another member is often on the same one: once in 100 ms, which
// is the default, 64 writers of keys on three members of one host waited for it a few percent of their time.
const backendInterval = 500 * time.Millisecond

const (
	heartbeatMillis = 50
	electionMillis  = 400

	defaultQuota = 4 << 30
	clientSocket = "client.sock" // for etcdctl
	serverScheme = "http"        // of the address of the server beside the member, which etcd passes on
	httpSocket   = "http.sock"   // health and metrics

	// longestSocket is how long the path of a socket may be.
	longestSocket = 107
)

// A Member is a running member.
type Member struct {
	etcd    *embed.Etcd
	client  *clientv3.Client
	quota   int64
	peerTLS transport.TLSInfo
	log     *slog.Logger

	tending   sync.Mutex // held while the member looks after its database
	fullSince time.Time  // when it found its quota reached, or zero; guarded by tending

	warned time.Time // when upkeep last told of trouble, or zero; owned by Start, then by upkeep

	stop context.CancelFunc
	work sync.WaitGroup
	once sync.Once
	done chan struct{} // closed when the member has stopped
	err  error         // why, set before done is closed
}

// Start starts a member and waits until it is part of a majority, or ctx ends.
func Start(ctx context.Context, cfg Config) (*Member, error) {
	ec, err := config(cfg)
	if err != nil {
		return nil, err
	}
	e, err := embed.StartEtcd(ec)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", cfg.Name, known(err))
	}
	if err := ready(ctx, e, cfg); err != nil {
		return nil, fmt.Errorf("member %s: %w", cfg.Name, err)
	}
	m := &Member{
		etcd: e, client: v3client.New(e.Server), quota: ec.QuotaBackendBytes, peerTLS: ec.PeerTLSInfo, log: cfg.Log,
		done: make(chan struct{}),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.tendOrWarn(ctx) // before any process campaigns: the quota may have been reached, and be larger now
	upkeep, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.work.Go(func() { m.upkeep(upkeep) })
	go m.wait()
	return m, nil
}

// ErrKnown says that the other members know this one, whose folder is empty: see [Replace].
var ErrKnown = errors.New("the other members know this one, and its folder is empty")

// known finds out whether etcd refused to start for that. It has no error value of its own for it.
func known(err error) error {
	if strings.HasSuffix(err.Error(), "has already been bootstrapped") {
		return ErrKnown
	}
	return err
}

// config is what etcd needs to know.
func config(cfg Config) (*embed.Config, error) {
	if cfg.Peers[cfg.Name] == "" {
		return nil, fmt.Errorf("member %q is none of the peers %v", cfg.Name, slices.Sorted(maps.Keys(cfg.Peers)))
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("member %s: %w", cfg.Name, err)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", cfg.Name, err)
	}
	if p := filepath.Join(dir, clientSocket); len(p) > longestSocket {
		return nil, fmt.Errorf("member %s: %s: a socket cannot have a path this long; choose a folder with a shorter one", cfg.Name, p)
	}
	ec := embed.NewConfig()
	ec.Name, ec.Dir = cfg.Name, dir
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zaplog.New(cfg.Log, "etcd"))
	ec.TickMs, ec.ElectionMs = heartbeatMillis, electionMillis
	ec.BackendBatchInterval = backendInterval
	ec.QuotaBackendBytes = cfg.QuotaBytes
	if cfg.QuotaBytes <= 0 {
		ec.QuotaBackendBytes = defaultQuota
	}
	ec.AutoCompactionMode, ec.AutoCompactionRetention = embed.CompactorModePeriodic, "10m" // the leader does so earlier
	ec.InitialClusterToken = "serry " + cfg.Cluster
	if cfg.Join {
		ec.ClusterState = embed.ClusterStateFlagExisting
	}
	ec.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, clientSocket)}}
	ec.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, httpSocket)}}
	ec.AdvertiseClientUrls = ec.ListenClientUrls
	if cfg.Address != "" {
		ec.AdvertiseClientUrls = append(ec.AdvertiseClientUrls, url.URL{Scheme: serverScheme, Host: cfg.Address})
	}
	return ec, peers(ec, cfg)
}

// hosts are the hosts of the members. A certificate that names none of them opens no connection between members: the
// authority may have issued it to a task (SEC-62).
func hosts(peers map[string]string) []string {
	var all []string
	for _, address := range peers {
		if host, _, err := net.SplitHostPort(address); err == nil { // else peers says what is wrong
			all = append(all, host)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// peers fills in the addresses of the members.
func peers(ec *embed.Config, cfg Config) error {
	scheme := "http"
	if t := cfg.TLS; t != nil {
		scheme = "https"
		ec.PeerTLSInfo = transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: true, AllowedHostnames: hosts(cfg.Peers)}
		ec.TlsMinVersion = string(tlsutil.TLSVersion13)
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Peers)) {
		all = append(all, name+"="+scheme+"://"+cfg.Peers[name])
	}
	ec.InitialCluster = strings.Join(all, ",")
	host, port, err := net.SplitHostPort(cfg.Peers[cfg.Name])
	if err != nil {
		return fmt.Errorf("member %s: %w", cfg.Name, err)
	}
	listen := cfg.PeerListen
	if listen == "" {
		if net.ParseIP(host) == nil && host != "localhost" {
			host = "0.0.0.0"
		}
		listen = net.JoinHostPort(host, port)
	}
	ec.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: listen}}
	ec.AdvertisePeerUrls = []url.URL{{Scheme: scheme, Host: cfg.Peers[cfg.Name]}}
	return nil
}

// Open makes a store of the cluster, by way of this member. cfg says nothing of how to reach it.
func (m *Member) Open(ctx context.Context, cfg etcd.Config) (store.Store, error) {
	cfg.Endpoints, cfg.TLS, cfg.Client, cfg.Compact, cfg.QuotaBytes = nil, nil, m.client, true, m.quota
	st, err := etcd.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return apart{st, m}, nil
}

// Read opens the journal of the cluster without campaigning for it, by way of this member.
func (m *Member) Read(ctx context.Context, cfg etcd.Config) (*store.History, error) {
	cfg.Endpoints, cfg.TLS, cfg.Client = nil, nil, m.client
	return etcd.Read(ctx, cfg)
}

// Applied is how many entries of the log this member has applied.
func (m *Member) Applied() uint64 { return m.etcd.Server.AppliedIndex() }

// Peers lists all members, in the order of their addresses.
func (m *Member) Peers() []store.Peer {
	var all []store.Peer
	for _, o := range m.etcd.Server.Cluster().Members() {
		all = append(all, peersOf(o.Name, o.PeerURLs, o.ClientURLs)...)
	}
	return sorted(all)
}

// wait notes the end of the member.
func (m *Member) wait() {
	select {
	case m.err = <-m.etcd.Err():
	case <-m.etcd.Server.StopNotify():
	}
	close(m.done)
}

// Done is closed when the member has stopped, by Close or by an error.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err is why the member has stopped, or nil. It is called after Done is closed.
func (m *Member) Err() error { return m.err }

// Close stops the member. If it leads the cluster it hands over first, where another can take over.
func (m *Member) Close() error {
	m.once.Do(func() {
		m.stop()
		m.work.Wait()
		m.etcd.Close()
	})
	<-m.done
	if errors.Is(m.err, net.ErrClosed) {
		return nil
	}
	return m.err
}
