package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/mtls"
)

func newRelay() *cobra.Command {
	s := &relaySettings{}
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Stand between the ranks of this host and the service, and hide its outages",
		Long: `Run a relay: the ranks of this host connect to it instead of to the coordination
service, in plain text and without a changed line, and do not notice when the
service dies and is replaced. serry run --service has one built in; this command
is for ranks that something else starts, as a container beside them.

Its first line on stdout says where it serves. Start it before the ranks and end
it after them: a rank that loses its relay ends as if it had lost the service.
It ends politely at SIGTERM or SIGINT.

With --pid it watches processes, and the service hears at once when and how one
ends. It must see them: side containers share their process namespace for that.
It tells serry stacks where the ranks are that it can see: those of --pid, and
those whose variables have its address.
Every flag can be given by environment: --upstream is SERRY_UPSTREAM.`,
		Example: `  # the service runs on three hosts; jax on this host is told coordinator_address='localhost:8476'
  serry relay --upstream host0:8476,host1:8476,host2:8476

  # behind a socket, with certificates that jax knows nothing of
  serry relay --upstream host0:8476 --listen unix:/run/serry/relay.sock \
    --tls-cert relay.pem --tls-key relay.key --tls-ca ca.pem`,
		Args:    noArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config(cmd)
			if err != nil {
				return seeHelp(cmd, err)
			}
			if err := s.run(cmd, cfg); err != nil {
				return runError{err}
			}
			return nil
		},
	}
	s.define(cmd.Flags())
	return cmd
}

// relaySettings are the flags of serry relay.
type relaySettings struct {
	upstream              []string
	listen, metricsListen string
	sockets               sockets
	pids                  []string
	page                  pageSettings
	noStacks              bool
	giveUp                time.Duration
	tls                   mtls.Files
	logFormat, logLevel   string

	processes map[serry.TaskID]int // from pids; set by config
	identity  *mtls.Identity       // from the files, or nil; set by config
}

func (s *relaySettings) define(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringSliceVar(&s.upstream, "upstream", nil, "`addresses` of the servers of the service, with commas between them")
	f.StringVar(&s.listen, "listen", defaultAddress, "`address` for the ranks of this host: host:port, or unix:/path")
	s.sockets.define(f)
	f.StringSliceVar(&s.pids, "pid", nil, "processes to watch, as `rank=pid,...`: worker/0=4711, or 0=4711 for the job "+wire.DefaultJob)
	f.BoolVar(&s.noStacks, "no-stacks", false, "do not look at the processes of ranks when serry stacks asks where they are")
	f.DurationVar(&s.giveUp, "give-up", relay.DefaultGiveUp, "how long the service may be out of reach before ranks are told, which ends them; 0: for ever")
	f.StringVar(&s.tls.Cert, "tls-cert", "", "PEM `file` with the certificate chain to show to the service")
	f.StringVar(&s.tls.Key, "tls-key", "", "PEM `file` with its private key")
	f.StringVar(&s.tls.CA, "tls-ca", "", "PEM `file` with the roots that the service must chain to")
	f.StringVar(&s.tls.PeerPrefix, "tls-peer-prefix", "", "what a URI name of the service's certificate must begin with")
	f.StringVar(&s.metricsListen, "metrics-listen", "", "`address` of /metrics for Prometheus, and of the health pages /livez and /readyz")
	s.page.define(f, "`address` of a page that shows the job to people with its token, such as localhost:8480; port 0 takes a free one")
	f.StringVar(&s.logFormat, "log-format", "text", "`text` or json")
	f.StringVar(&s.logLevel, "log-level", "info", "least important lines to log: debug, `info`, warn or error")
}

// config turns the flags into the configuration of a relay.
func (s *relaySettings) config(cmd *cobra.Command) (relay.Config, error) {
	c := relay.Config{GiveUp: orNone(cmd, "give-up", s.giveUp), Dial: s.sockets.dial()}
	var err error
	if c.Upstream, err = upstreamOf("upstream", s.upstream); err != nil {
		return c, err
	}
	if err := checkListen("listen", s.listen); err != nil {
		return c, err
	}
	if s.metricsListen != "" {
		if err := checkListen("metrics-listen", s.metricsListen); err != nil {
			return c, err
		}
	}
	if err := s.page.check(); err != nil {
		return c, err
	}
	if s.processes, err = parsePids(s.pids); err != nil {
		return c, err
	}
	if !s.tls.IsZero() {
		if s.identity, err = mtls.Load(s.tls); err != nil {
			return c, err
		}
		c.TLS = s.identity.Client
	}
	log := settings{logFormat: s.logFormat, logLevel: s.logLevel}
	c.Log, err = log.logger(cmd)
	return c, err
}

// upstreamOf reads the addresses of a service.
func upstreamOf(flag string, list []string) ([]string, error) {
	if len(list) == 0 {
		return nil, hinted{errors.New("no address of the service is given"), "--" + flag + " host0:8476,host1:8476 names its servers"}
	}
	var all []string
	for _, address := range list {
		full, err := fullAddress(address)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		all = append(all, full)
	}
	return all, nil
}

// parsePids reads which task runs in which process.
func parsePids(list []string) (map[serry.TaskID]int, error) {
	all := make(map[serry.TaskID]int)
	for _, part := range list {
		name, number, _ := strings.Cut(part, "=")
		if !strings.Contains(name, "/") {
			name = wire.DefaultJob + "/" + name
		}
		task, err := serry.ParseTaskID(name)
		pid, err2 := strconv.Atoi(number)
		if err != nil || err2 != nil || pid <= 0 {
			return nil, fmt.Errorf("--pid %q: want rank=pid, such as worker/0=4711", part)
		}
		all[task] = pid
	}
	return all, nil
}

// run runs a relay until a signal comes.
func (s *relaySettings) run(cmd *cobra.Command, cfg relay.Config) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	l, err := listen(s.listen)
	if err != nil {
		return err
	}
	r, err := relay.New(cfg)
	if err != nil {
		l.Close()
		return err
	}
	defer endRelay(r)
	health, err := openHealth(s.metricsListen, cfg.Log)
	if err != nil {
		l.Close()
		return err
	}
	defer health.close()
	health.of(r)
	defer reloadOnHangup(s.identity, cfg.Log)()
	if err := s.watch(r); err != nil {
		l.Close()
		return err
	}
	settleIn()
	defer s.answer(printed(l))()
	source := newPageSource(askedAt(printed(l)), mtls.Files{}) // as the ranks of this host see the service
	source.servers = newServerSurvey(cfg.Upstream, s.tls)
	s.page.identity, s.page.shownOnly = s.identity, true
	page, err := s.page.open(source, &pageActs{source: source}, cfg.Log)
	if err != nil {
		l.Close()
		return err
	}
	defer page.close()
	fmt.Fprintf(cmd.OutOrStdout(), "serry: relay to %s on %s\n", strings.Join(cfg.Upstream, ","), printed(l))
	if page != nil {
		page.say(cmd.OutOrStdout())
	}
	return serveRelay(ctx, stop, r, s.sockets.listener(l), cfg.Log)
}

// watch begins to watch the processes of the command line.
func (s *relaySettings) watch(r *relay.Relay) error {
	for task, pid := range s.processes {
		if err := r.Watch(task, pid); err != nil {
			return err
		}
	}
	return nil
}

// answer answers what the service asks about the ranks of this host (D-ST-12), through the relay itself, so that it needs no other
// way to the service. The function that it returns ends that.
func (s *relaySettings) answer(address string) (stop func()) {
	if s.noStacks {
		return func() {}
	}
	line, err := client.Dial(address, client.DialOptions{})
	if err != nil {
		return func() {} // ranks cannot reach it either
	}
	host, _ := os.Hostname() // for people to read
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends with ctx, or because the service asks no questions.
		_ = client.Attend(ctx, line, client.Attendant{Name: host, Answer: func(ctx context.Context, q client.Question) []client.Finding {
			return launch.AnswerStacks(ctx, q, s.ranks(address))
		}})
	}()
	return func() {
		cancel()
		<-done
		line.Close()
	}
}

// ranks are the processes that are ranks behind this relay: those of the command line, and those whose variables have its address.
func (s *relaySettings) ranks(address string) []launch.TaskProcess {
	var all []launch.TaskProcess
	for task, pid := range s.processes {
		all = append(all, launch.TaskProcess{Task: task, PID: pid})
	}
	for _, r := range ranksHere(address) {
		number, err := strconv.Atoi(r.rank)
		task := serry.TaskID{Job: wire.DefaultJob, Index: number}
		if _, given := s.processes[task]; err == nil && !given {
			all = append(all, launch.TaskProcess{Task: task, PID: r.pids[0]})
		}
	}
	return all
}

// relayPatience is how long the last replies of a relay that ends may take.
const relayPatience = 5 * time.Second

// endRelay ends a relay in order.
func endRelay(r *relay.Relay) {
	ctx, cancel := context.WithTimeout(context.Background(), relayPatience)
	defer cancel()
	r.Shutdown(ctx)
}

// serveRelay serves until ctx ends, and then lets the relay end in order.
func serveRelay(ctx context.Context, stop func(), r *relay.Relay, l net.Listener, log *slog.Logger) error {
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	log.Info("ending", "err", context.Cause(ctx))
	endRelay(r)
	if err := <-served; !errors.Is(err, serry.ErrStopped) { // ErrStopped: the signal came before Serve had begun
		return err
	}
	return nil
}
