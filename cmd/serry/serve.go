package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/mtls"
)

func newServe() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the coordination service of a job",
		Long: `Run the coordination service of a job. Its first line on stdout says where it
serves. It serves any number of attempts of the job, one after the other. At
SIGTERM or SIGINT it ends, and with it the job, unless that is kept in a store:
then the job goes on when the server is started again, and serry stop ends it.
With TLS, SIGHUP makes it read the files of its certificate again; it also finds
out by itself, in a minute.

With --store file:DIR a server that ended, or was killed, is started again with
the same folder, and the job goes on. With --peers, or --store etcd:..., several
servers stand for one service: one leads, the others take its place when it dies,
and at SIGTERM it hands over (see serry handover, too). Ranks behind a relay
(serry run, serry relay) do not notice.

Port 8476 is the one jax uses for a coordinator where nothing else is said.
Every flag can be given by environment: --tasks is SERRY_TASKS.`,
		Example: `  # four ranks, on port 8476; then in each of four processes:
  #   jax.distributed.initialize('HOST:8476', num_processes=4, process_id=I)
  # (process 0: JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0, so that it starts no service of its own there)
  serry serve --tasks 4

  # three servers, any one of which may be lost; the same on b and c with their names
  serry serve --tasks 4 --peers a=host1:8477,b=host2:8477,c=host3:8477 --name a --data-dir /var/lib/serry

  # a TensorFlow cluster behind a socket, with metrics
  serry serve --jobs ps=2,worker=4 --listen unix:/run/serry.sock --metrics-listen localhost:9090

  # with a page that shows the job
  serry serve --tasks 4 --web localhost:8480`,
		Args: noArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config(cmd)
			if err == nil {
				cfg.Log, err = s.logger(cmd)
			}
			if err != nil {
				return seeHelp(cmd, err)
			}
			cfg.Stoppable = true
			if err := serve(cmd, s, cfg); err != nil {
				return runError{err}
			}
			return nil
		},
	}
	s.define(cmd.Flags())
	return cmd
}

// settleIn makes a process that has started, and will live long, cheap to have.
func settleIn() {
	if os.Getenv("GOGC") == "" {
		boundGarbage()
	}
	shedImage()
}

// open says whether other hosts can reach an address.
func open(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// serve runs a server until a signal comes.
func serve(cmd *cobra.Command, s *settings, cfg server.Config) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	l, err := listen(s.listen)
	if err != nil {
		return err
	}
	health, err := openHealth(s.metricsListen, cfg.Log) // before the store, which may have to wait for others
	if err != nil {
		l.Close()
		return err
	}
	defer health.close()
	srv, closeStore, err := s.open(ctx, l, cfg)
	if err != nil {
		l.Close()
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	health.of(srv)
	defer reloadOnHangup(s.identity, cfg.Log)()

	total := 0
	for _, j := range cfg.Cluster.Jobs {
		total += j.Tasks
	}
	listed := s.list(total, printed(l))
	defer func() { listed(err) }()
	settleIn()
	if cfg.TLS == nil && open(l.Addr()) {
		cfg.Log.Warn("plain text: whatever reaches this address can join the job, read its keys and end it; "+
			"--tls-cert, --tls-key and --tls-ca ask for certificates", "listen", printed(l))
	}
	page, err := s.openPage(l, cfg.Log)
	if err != nil {
		l.Close()
		srv.Shutdown(context.Background())
		return err
	}
	defer page.close()
	if several, ok := srv.(*node.Node); ok && page != nil {
		several.Announce(page.address())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "serry: serving %d tasks on %s\n", total, printed(l))
	if page != nil {
		page.say(cmd.OutOrStdout())
	}

	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.sockets.listener(l)) }()
	select {
	case <-srv.Done():
		return errors.Join(srv.Err(), <-served)
	case err = <-served:
		srv.Shutdown(context.Background())
		return errors.Join(err, srv.Err())
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	cfg.Log.Info("ending", "err", context.Cause(ctx))
	srv.Shutdown(context.Background())
	if err := <-served; !errors.Is(err, serry.ErrStopped) { // ErrStopped: the signal came before Serve had begun
		return err
	}
	return nil
}

// openPage serves the page of this service, which it asks at its own address, as a command on this host does.
func (s *settings) openPage(l net.Listener, log *slog.Logger) (*page, error) {
	files := s.tls
	files.PeerPrefix = "" // it is what clients are called
	source := newPageSource(askedAt(printed(l)), files)
	source.servers = newServerSurvey([]string{askedAt(printed(l))}, files)
	s.page.identity = s.identity
	return s.page.open(source, &pageActs{source: source, stops: true}, log)
}

// askedAt is where a program on this host asks a server that listens on an address.
func askedAt(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// list puts a server on the list of serry jobs. The function that it returns notes its end.
func (s *settings) list(tasks int, address string) (over func(error)) {
	files := listedFiles(s.tls)
	files.PeerPrefix = ""   // it is what clients are called
	r, _ := register(entry{ // the service runs all the same
		Kind: kindServe, Address: askedAt(address), Group: s.peers, TLS: files, Tasks: tasks, Command: append([]string{"serry"}, os.Args[1:]...),
	})
	return func(err error) {
		if err != nil {
			r.end(fit("failed: "+printable(err.Error()), maxOutcome))
			return
		}
		r.end(endedWell)
	}
}

// reloadOnHangup reads the files of an identity again when SIGHUP comes, until the function that it
// returns is called. They would be looked at anyway, but not at once (A-TLS-11). Without TLS the
// signal keeps its meaning.
func reloadOnHangup(id *mtls.Identity, log *slog.Logger) (stop func()) {
	if id == nil {
		return func() {}
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hangups {
			if err := id.Reload(); err != nil {
				log.Error("certificates not reloaded", "err", err)
			} else {
				log.Info("certificates reloaded")
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
	}
}
