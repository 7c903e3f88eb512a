package launch

import (
	"context"
	"net"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
)

// A service is the coordination service of one attempt.
type service struct {
	*server.Server
	address string
	served  chan error
}

// openService starts the service of an attempt on an address of its own: of this host alone, or, for a
// job on several, under the name of this host that the others know.
func openService(cfg Config) (*service, error) {
	if !cfg.several() {
		return serve(cfg.Service, "127.0.0.1:0", wire.DefaultJob, cfg.total())
	}
	s, err := serve(cfg.Service, ":0", wire.DefaultJob, cfg.total())
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(cfg.Coordinator) // it is well formed
	_, port, err := net.SplitHostPort(s.address)
	s.address = net.JoinHostPort(host, port)
	return s, err
}

// serve starts a service for the tasks of one job.
func serve(cfg server.Config, listen, job string, tasks int) (*service, error) {
	cfg.Cluster.Jobs = []coord.Job{{Name: job, Tasks: tasks}}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	srv, err := server.New(cfg)
	if err != nil {
		l.Close()
		return nil, err
	}
	s := &service{Server: srv, address: l.Addr().String(), served: make(chan error, 1)}
	go func() { s.served <- srv.Serve(l) }()
	return s, nil
}

// close ends the service. Nobody is connected any more who would wait for a word.
func (s *service) close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
	return <-s.served
}
