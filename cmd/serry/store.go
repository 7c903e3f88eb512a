package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
	"github.com/serry-dev/serry/wire/mtls"
)

// storeSettings are the flags of serry serve that say what outlives the process.
type storeSettings struct {
	store     string
	prefix    string
	tls       mtls.Files // towards etcd
	lease     time.Duration
	peers     string
	name      string
	dataDir   string
	join      bool
	quota     size // 0: the default
	advertise string
	restore   string
}

func (s *storeSettings) define(f *pflag.FlagSet) {
	f.StringVar(&s.store, "store", "memory", "what the job is kept in: `memory`, file:DIR, or etcd:ENDPOINT,...")
	f.StringVar(&s.peers, "peers", "", "all servers of the service, as `name=host:port,...`, which then share a store of their own")
	f.StringVar(&s.name, "name", "", "which of the peers this server is")
	f.StringVar(&s.dataDir, "data-dir", "", "`folder` for this peer's part of the store")
	f.BoolVar(&s.join, "join", false, "take the place of a peer that has lost its folder, see serry peers replace")
	f.Var(&s.quota, "quota", "`size` to which the store of --peers may grow, or that an etcd has (default 4GiB for --peers, else what etcd says)")
	f.StringVar(&s.advertise, "advertise", "", "`address` at which other hosts reach this server (default: its name among the peers, or of this host)")
	f.StringVar(&s.restore, "restore", "", "begin with the history in a `file` of serry replay --export; the store must be empty")
	f.DurationVar(&s.lease, "lease", 3*time.Second, "how long a leader may be silent before another takes its place")
	s.defineEtcd(f)
}

// defineEtcd defines the flags that say where in an etcd the service is, and how to talk to it.
func (s *storeSettings) defineEtcd(f *pflag.FlagSet) {
	f.StringVar(&s.prefix, "store-prefix", defaultPrefix, "where in etcd the keys of this service begin")
	f.StringVar(&s.tls.Cert, "store-cert", "", "PEM `file` with the certificate to show to etcd")
	f.StringVar(&s.tls.Key, "store-key", "", "PEM `file` with its private key")
	f.StringVar(&s.tls.CA, "store-ca", "", "PEM `file` with the roots that etcd must chain to")
}

// defaultPrefix is where in etcd the keys of a service begin if nothing is said.
const defaultPrefix = "/serry/"

// Kinds of stores.
const (
	memoryStore = "memory"
	filePrefix  = "file:"
	etcdPrefix  = "etcd:"
)

// leastQuota is the smallest size of a store that is of use.
var leastQuota = size(32 << 20)

// check says what is wrong with the flags.
func (s *storeSettings) check(listen string) error {
	dir, isFile := strings.CutPrefix(s.store, filePrefix)
	endpoints, isEtcd := strings.CutPrefix(s.store, etcdPrefix)
	switch {
	case s.quota != 0 && s.quota < leastQuota:
		return fmt.Errorf("--quota %s: want %s or more", s.quota.String(), leastQuota.String())
	case s.peers != "":
		return s.checkPeers(listen)
	case s.quota != 0 && !isEtcd:
		return errors.New("--quota is for servers with --peers or --store etcd:...")
	case s.name != "" || s.dataDir != "" || s.join:
		return errors.New("--name, --data-dir and --join are for servers with --peers")
	case isFile && dir == "":
		return fmt.Errorf("--store %q: want a folder after %s", s.store, filePrefix)
	case isEtcd && endpoints == "":
		return fmt.Errorf("--store %q: want addresses of etcd after %s", s.store, etcdPrefix)
	case s.restore != "" && s.store == memoryStore:
		return errors.New("--restore is for a store that lasts: --store file:DIR, --store etcd:ENDPOINT,... or --peers")
	case !isFile && !isEtcd && s.store != memoryStore:
		return fmt.Errorf("--store %q: want %s, %sDIR or %sENDPOINT,...", s.store, memoryStore, filePrefix, etcdPrefix)
	case isEtcd && strings.HasPrefix(listen, unixPrefix):
		return errors.New("--listen on a Unix socket: want host:port, other servers must reach it")
	}
	return nil
}

func (s *storeSettings) checkPeers(listen string) error {
	hint := "--peers a=host1:8477,b=host2:8477,c=host3:8477 --name a --data-dir /var/lib/serry"
	peers, err := splitPeers(s.peers)
	switch {
	case err != nil:
		return hinted{err, hint}
	case s.store != memoryStore:
		return errors.New("--peers and --store exclude each other")
	case s.join && s.restore != "":
		return errors.New("--join and --restore exclude each other: who joins gets the history from the others")
	case peers[s.name] == "":
		return hinted{fmt.Errorf("--name %q is none of the peers", s.name), hint}
	case s.dataDir == "":
		return hinted{errors.New("--data-dir is not given"), hint}
	case strings.HasPrefix(listen, unixPrefix):
		return errors.New("--listen on a Unix socket: want host:port, other servers must reach it")
	}
	return nil
}

func splitPeers(list string) (map[string]string, error) {
	peers := make(map[string]string)
	for part := range strings.SplitSeq(list, ",") {
		name, address, _ := strings.Cut(part, "=")
		_, _, err := net.SplitHostPort(address)
		switch {
		case name == "" || err != nil:
			return nil, fmt.Errorf("--peers %q: want name=host:port,...", list)
		case peers[name] != "":
			return nil, fmt.Errorf("--peers names %q twice", name)
		}
		peers[name] = address
	}
	return peers, nil
}

// A service is what serry serve runs: one server, or one node of several.
type service interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context)
	observed
	Done() <-chan struct{}
	Err() error
}

// open starts the service that the flags describe, to be reached at l. What it needs beside is closed by
// the function that comes with it.
func (s *settings) open(ctx context.Context, l net.Listener, cfg server.Config) (service, func() error, error) {
	dir, isFile := strings.CutPrefix(s.store, filePrefix)
	endpoints, isEtcd := strings.CutPrefix(s.store, etcdPrefix)
	switch {
	case s.peers != "":
		return s.openPeer(ctx, l, cfg)
	case isEtcd:
		return s.openEtcd(ctx, l, cfg, strings.Split(endpoints, ","))
	case isFile:
		return s.openFile(ctx, dir, cfg)
	}
	srv, err := server.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	attended := attend(srv, cfg.Log)
	return srv, func() error { attended(); return nil }, nil
}

// attend does what people ask of a server that has no others beside it. The function that it returns waits
// until that is done, which is after the server has ended: a process that does not wait may exit before the
// last line of its log.
func attend(srv *server.Server, log *slog.Logger) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-srv.HandoverAsked(): // never without a journal
			srv.Shutdown(context.Background())
			log.Info("handed over", "next", "a server that is started with the same store goes on with the job")
		case <-srv.StopAsked():
			log.Info("the service is told to end")
			srv.Stop(context.Background())
		case <-srv.Done():
		}
	}()
	return func() { <-done }
}

// openFile starts a server that goes on with what a folder holds.
func (s *settings) openFile(ctx context.Context, dir string, cfg server.Config) (service, func() error, error) {
	st, err := store.OpenFile(store.FileConfig{Dir: dir, Log: cfg.Log})
	if err != nil {
		return nil, nil, err
	}
	srv, err := s.leadAlone(ctx, st, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	attended := attend(srv, cfg.Log)
	return srv, func() error { attended(); return st.Close() }, nil
}

// leadAlone starts the only server of a store.
func (s *settings) leadAlone(ctx context.Context, st store.Store, cfg server.Config) (*server.Server, error) {
	reign, err := st.Campaign(ctx, store.Candidate{})
	if err != nil {
		return nil, err
	}
	if err := s.restoreTo(ctx, reign, cfg.Log); err != nil {
		return nil, err
	}
	cfg.Journal = reign
	return server.New(cfg)
}

// openEtcd starts a node that meets the others in an etcd that serry does not run.
func (s *settings) openEtcd(ctx context.Context, l net.Listener, cfg server.Config, endpoints []string) (service, func() error, error) {
	ec := s.etcd(cfg.Log)
	if err := s.storeSettings.reach(&ec, endpoints); err != nil {
		return nil, nil, err
	}
	st, err := etcd.Open(ctx, ec)
	if err != nil {
		return nil, nil, err
	}
	cfg.Log.Info("asking etcd", "endpoints", strings.Join(endpoints, ","))
	if _, err := st.Leader(ctx); err != nil && !errors.Is(err, store.ErrNoLeader) {
		return nil, nil, errors.Join(err, st.Close())
	}
	read := func(ctx context.Context) (*store.History, error) { return etcd.Read(ctx, ec) }
	address, err := s.reachable(l, "")
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	n, err := s.node(ctx, cfg, node.Config{Store: st, Address: address}, read)
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	return n, st.Close, nil
}

// reach says where an etcd that serry does not run is, and how to talk to it.
func (s *storeSettings) reach(c *etcd.Config, endpoints []string) error {
	c.Endpoints = endpoints
	if s.tls.IsZero() {
		return nil
	}
	id, err := mtls.Load(s.tls)
	if err != nil {
		return err
	}
	c.TLS = id.Client("")
	c.TLS.VerifyConnection = func(cs tls.ConnectionState) error { return verifyEndpoint(id, endpoints, cs) }
	return nil
}

// verifyEndpoint checks the certificate of an etcd. Each endpoint has a name of its own, which the
// connection knows; but it does not know its IP address, so there the certificate must be for one of
// those that were given.
func verifyEndpoint(id *mtls.Identity, endpoints []string, cs tls.ConnectionState) error {
	if cs.ServerName != "" {
		return id.Client(cs.ServerName).VerifyConnection(cs)
	}
	err := errors.New("no endpoint has an IP address, and the connection no name")
	for _, e := range endpoints {
		_, address, found := strings.Cut(e, "://")
		if !found {
			address = e
		}
		host := address
		if h, _, splitErr := net.SplitHostPort(address); splitErr == nil {
			host = h
		}
		if net.ParseIP(host) == nil {
			continue
		}
		if err = id.Client(host).VerifyConnection(cs); err == nil {
			return nil
		}
	}
	return err
}

func (s *settings) etcd(log *slog.Logger) etcd.Config {
	return etcd.Config{
		Prefix: s.prefix, LeaseTTL: s.lease, MaxValueBytes: s.limits["value-bytes"], QuotaBytes: int64(s.quota), Log: log,
	}
}

// openPeer starts a node together with its part of the store.
func (s *settings) openPeer(ctx context.Context, l net.Listener, cfg server.Config) (service, func() error, error) {
	peers, err := splitPeers(s.peers)
	if err != nil {
		return nil, nil, err
	}
	host, _, _ := net.SplitHostPort(peers[s.name]) // which splitPeers has checked
	address, err := s.reachable(l, host)
	if err != nil {
		return nil, nil, err
	}
	mc := member.Config{Name: s.name, Peers: peers, Address: address, Dir: s.dataDir, Join: s.join, QuotaBytes: int64(s.quota), Log: cfg.Log}
	if !s.tls.IsZero() {
		mc.TLS = &member.TLS{Cert: s.tls.Cert, Key: s.tls.Key, CA: s.tls.CA}
	}
	cfg.Log.Info("joining the peers", "name", s.name, "of", len(peers))
	m, err := member.Start(ctx, mc)
	if err != nil {
		return nil, nil, peerMistake(peers[s.name], taken(err))
	}
	st, err := m.Open(ctx, s.etcd(cfg.Log))
	if err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	closeAll := func() error { return errors.Join(st.Close(), m.Close()) }
	read := func(ctx context.Context) (*store.History, error) { return m.Read(ctx, s.etcd(cfg.Log)) }
	n, err := s.node(ctx, cfg, node.Config{Store: st, Address: address, Name: s.name, Members: m}, read)
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	go func() { // a node without its store is none
		select {
		case <-m.Done():
			cfg.Log.Error("the store of this peer ended", "err", m.Err())
			n.Shutdown(context.Background())
		case <-n.Done():
		}
	}()
	return n, closeAll, nil
}

// peerMistake adds to the error of a server that has lost its folder what brings it back.
func peerMistake(address string, err error) error {
	if !errors.Is(err, member.ErrKnown) {
		return err
	}
	return hinted{err, fmt.Sprintf("the others know this server, and its folder is empty. If the folder was lost: serry peers replace %s --data-dir DIR "+
		"on the host of another server, then start this one with --join. If --data-dir is wrong: give the folder that it had", address)}
}

// node starts a node of which the store and the address are known. read opens the journal of its store without
// leading.
func (s *settings) node(ctx context.Context, cfg server.Config, nc node.Config,
	read func(context.Context) (*store.History, error)) (*node.Node, error) {
	if err := s.restoreShared(ctx, nc.Store, store.Candidate{Address: nc.Address}, cfg.Log, read); err != nil {
		return nil, err
	}
	nc.Server, nc.Dial = cfg, s.sockets.dial()
	if s.identity != nil {
		nc.TLS = func(host string) *tls.Config { return s.identity.Client(host) }
	}
	return node.New(nc)
}

// reachable is the address at which others reach l.
func (s *settings) reachable(l net.Listener, host string) (string, error) {
	if s.advertise != "" {
		if _, _, err := net.SplitHostPort(s.advertise); err == nil {
			return s.advertise, nil
		}
	}
	bound, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(bound); ip != nil && !ip.IsUnspecified() {
		return net.JoinHostPort(cmp.Or(s.advertise, bound), port), nil
	}
	if host = cmp.Or(s.advertise, host); host == "" {
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("--advertise is not given: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}
