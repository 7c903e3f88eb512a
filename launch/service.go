package launch

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
)

// A service is the coordination service of one attempt, as the first launcher sees it: one inside this
// process, or one that others run.
type service interface {
	// Exited and Lost say what became of a task, as package server has them.
	Exited(task serry.TaskID, cause string)
	Lost(task serry.TaskID, evidence string)

	// view is the last picture of the service that was seen. It never waits.
	view() coord.View

	// fresh is closed when the next picture is there; nil: view always returns the newest.
	fresh() <-chan struct{}

	// steady is since when the service has answered without a break and under one leader.
	steady() time.Time

	// lost says that the service has been out of reach for so long that its tasks were told, and will not be asked again; or nil.
	lost() error

	// news is what people should know of the service since the last call, or empty; lost is how many ranks the job has lost. It has one
	// caller at a time.
	news(now time.Time, lost int) string

	// gather has the service ask the processes of the job. It takes as long as they do, and ends when the service is closed.
	gather(context.Context, wire.Inquiry) (wire.Gathered, error)

	// publish has the service store a value, which commands such as why read. It does not wait until that is done.
	publish(key string, value []byte)

	// settle waits until what was published is stored, but not for long.
	settle()

	// used is how the time of the job was used so far, or nil: no steps were reported. account is that for the service of
	// the next attempt; nil: the service keeps it itself.
	used() *wire.GoodputStatus
	account() *goodput.Account

	// address is where tasks find it; empty if each host has a relay for them.
	address() string

	// String says for people where it is.
	String() string

	// close ends what the launcher has of it. No task is connected any more. It may take as long as a
	// network does.
	close() error
}

// hosted is a service inside this process.
type hosted struct {
	*server.Server
	at     string
	begun  time.Time
	served chan error
	line   client.Transport // to itself, for publish; or nil
	store  *publisher       // or nil
}

// openHosted starts the service of an attempt: on the address that all attempts share (Config.Listen), or on one of
// its own.
func openHosted(cfg Config) (*hosted, error) {
	l, err := cfg.listen()
	if err != nil {
		return nil, err
	}
	s, err := serve(cfg.Service, l, wire.DefaultJob, cfg.total())
	if err != nil {
		return nil, err
	}
	if s.line, err = client.Dial(s.at, client.DialOptions{}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.store = newPublisher(s.line)
	if s.at, err = cfg.known(s.at); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// listen listens for the tasks of an attempt, in a job on several hosts at the address that the others know.
func (c Config) listen() (net.Listener, error) {
	switch {
	case c.port != nil:
		return c.port.lend(), nil
	case c.several():
		host, _, _ := net.SplitHostPort(c.Coordinator) // it is well formed
		return listenAt(net.JoinHostPort(host, "0"))
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// known is the address of a service as its tasks know it: in a job on several hosts under the name of this host
// that the others know.
func (c Config) known(at string) (string, error) {
	host, port, err := net.SplitHostPort(at)
	switch {
	case err != nil:
		return "", err
	case c.several():
		host, _, _ = net.SplitHostPort(c.Coordinator) // it is well formed
	case net.ParseIP(host).IsUnspecified():
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// serve starts a service for the tasks of one job.
func serve(cfg server.Config, l net.Listener, job string, tasks int) (*hosted, error) {
	cfg.Cluster.Jobs = []coord.Job{{Name: job, Tasks: tasks}}
	srv, err := server.New(cfg)
	if err != nil {
		l.Close()
		return nil, err
	}
	s := &hosted{Server: srv, at: l.Addr().String(), begun: time.Now(), served: make(chan error, 1)}
	go func() { s.served <- srv.Serve(l) }()
	return s, nil
}

func (s *hosted) view() coord.View { return s.View() }

func (s *hosted) fresh() <-chan struct{} { return nil }

// lost is nil: a service inside this process is lost with it.
func (s *hosted) lost() error { return nil }

// news is empty: a service inside this process fails with it.
func (s *hosted) news(time.Time, int) string { return "" }

func (s *hosted) steady() time.Time { return s.begun }

func (s *hosted) publish(key string, value []byte) { s.store.publish(key, value) }

func (s *hosted) settle() { s.store.settle() }

func (s *hosted) gather(ctx context.Context, q wire.Inquiry) (wire.Gathered, error) {
	return gather(ctx, s.line, q)
}

func (s *hosted) used() *wire.GoodputStatus { return wire.NewGoodput(s.Goodput()) }

func (s *hosted) account() *goodput.Account { return s.Account() }

func (s *hosted) address() string { return s.at }

func (s *hosted) String() string { return "service on " + s.at }

func (s *hosted) close() error {
	if s.line != nil {
		s.line.Close()
	}
	if s.store != nil {
		s.store.close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
	return <-s.served
}
