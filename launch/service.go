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

// openService starts a service for a number of tasks on an address of its own.
func openService(cfg server.Config, listen string, tasks int) (*service, error) {
	cfg.Cluster.Jobs = []coord.Job{{Name: wire.DefaultJob, Tasks: tasks}}
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
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
	return <-s.served
}
