package main

import (
	"errors"
	"fmt"
	"io"
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

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/launch/cluster"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/mtls"
)

// runHelp is what serry run --help says first.
const runHelp = `Run a command as every rank of a job, with a coordination service beside them.

A jax program that calls jax.distributed.initialize() without arguments finds
its place by its environment; what a program passes itself wins. A Go program
calls client.ConfigFromEnv. What ranks write comes with their number in front;
there is nothing for them to read on stdin.

A rank that prints a Python exception and then wants to leave, while the others
work, has failed at once. One that wants to leave without an exception is named
after 5 s, and waits for the others for --shutdown-timeout.

When a rank fails, serry run says which one was first and how it ended, and
starts again what --restart names:
  never   nothing; the job ends (a --recoverable one goes on without the rank)
  failed  the rank alone; for jobs that live on keys, barriers and live sets.
          It cannot come back into collectives of jax on CPU
  all     all ranks, as a new attempt with a service of its own

Ranks that keep the others waiting and stand still are named after some seconds,
with the place in their Python code. When that lasts for --hang-after they are
stuck, and --on-hang says what to do:
  report   nothing but say so
  abort    end the job
  restart  what --restart says of a rank that has failed

With --service the ranks use a service that runs elsewhere (serry serve, for
as many ranks, and --recoverable where this is), by a relay on each host that
hides its outages. The three timeouts below are then those of that service.

Ranks know each other by a secret that serry run draws for each attempt. It is in
the file that SERRY_JOB_SECRET_FILE names, and only this user can read it. To
other hosts it goes in plain text, by the port at which launchers meet.

On a terminal, and with --web, it serves a page that shows the job, and prints its
address, whose end is the token that lets people see it (docs/PAGE.md).

No process of the job outlives it, whatever ends serry run. SIGINT, SIGTERM and
SIGHUP are passed on; ranks then have --grace to end, or until the second one.
Under a scheduler (Slurm, Open MPI, Kubernetes, SkyPilot, torchrun) SIGTERM is
the scheduler's, which kills when its own time is over: ranks then have that
time, unless --grace is given.

Exit status: 0 all ranks ended well; that of the first rank that failed, where a
signal counts as 128 and its number; 128 and the number of the signal that ended
serry run; 73 the job cannot start as it is: an address is taken, hosts do not
come, or the service is for another number of ranks; 74 the service, or for
other hosts the first launcher, is lost for good; 75 ranks were stuck, and
--on-hang ended the job; 127 or 126 the command is not there or cannot be run; 2
a mistake in the command line; 1 anything else.`

func newRun() *cobra.Command {
	s := &runSettings{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- command [argument]...",
		Short: "Run a job on this host, and stand by it",
		Long:  runHelp,
		Example: `  serry run -n 4 -- python train.py
  serry run -n auto -- python train.py   # one rank for each GPU
  serry run -n 8 --restart all --max-restarts 3 --log-dir logs -- python train.py

  # with a service on three hosts, which may lose any one of them
  serry run -n 4 --service host0:8476,host1:8476,host2:8476 -- python train.py

  # on each of two hosts, with I = 0 and 1
  serry run -n 8 --nnodes 2 --node-rank I --coordinator host0:8475 -- python train.py

  # the same where Slurm, Open MPI, Kubernetes or a TPU slice says it all
  srun --ntasks-per-node=1 serry run -n 8 -- python train.py`,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd) },
		RunE:    func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },
	}
	s.define(cmd.Flags())
	cmd.Flags().SetInterspersed(false) // flags of the command are its own
	return cmd
}

// newGuard is started by serry run only.
func newGuard() *cobra.Command {
	return &cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		Args:   noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := launch.Guard(); err != nil {
				return runError{err}
			}
			return nil
		},
	}
}

const guardCommand = "guard-a-run"

// procs is the value of -n.
type procs int

// autoProcs makes -n count the accelerators.
const autoProcs = "auto"

func (p *procs) String() string { return strconv.Itoa(int(*p)) }

// Set implements [pflag.Value].
func (p *procs) Set(text string) error {
	if text == autoProcs {
		*p = procs(max(1, len(launch.Accelerators())))
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want a whole number, or " + autoProcs)
	}
	*p = procs(n)
	return nil
}

// Type implements [pflag.Value].
func (p *procs) Type() string { return "number" }

// runSettings are the flags of serry run.
type runSettings struct {
	procs       procs
	nodes       int
	node        int
	spares      int
	coordinator string
	jobID       string
	cluster     string
	explain     bool
	restart     string
	maxRestarts int
	recoverable bool
	grace       time.Duration
	logDir      string
	reportFile  string
	stateDir    string
	noMPI       bool
	tracebacks  bool
	onHang      string
	hangAfter   time.Duration
	noStacks    bool
	noShim      bool
	stackSignal int
	logLevel    string
	listen      string
	service     []string
	tls         mtls.Files
	page        pageSettings
	noPage      bool

	registerTimeout, heartbeatTimeout, shutdownTimeout time.Duration
}

func (s *runSettings) define(f *pflag.FlagSet) {
	f.SortFlags = false
	s.procs = 1
	f.VarP(&s.procs, "procs", "n", "`number` of ranks on this host, or auto: one for each GPU, or one where there is none")
	f.IntVar(&s.nodes, "nnodes", 1, "`number` of hosts; serry run is started on each")
	f.IntVar(&s.node, "node-rank", 0, "`number` of this host, from 0")
	f.StringVar(&s.coordinator, "coordinator", "", "`host:port` on host 0 where all hosts meet")
	f.StringVar(&s.jobID, "job-id", "", "`name` that all hosts of this job give, and other jobs do not (default that of the scheduler, else the command)")
	f.StringSliceVar(&s.service, "service", nil, "`addresses` of a service that runs elsewhere, with commas between them (default one of its own for each attempt)")
	f.StringVar(&s.listen, "listen", "", "`address` of the service for all attempts, host:port, on host 0 (default an address of its own for each attempt)")
	f.IntVar(&s.spares, "spares", 0, "`number` of further hosts, with ranks from --nnodes on, that wait to take the place of a lost one")
	f.StringVar(&s.cluster, "cluster", cluster.Auto, "where to take the place of this host from if not given: auto, none, or `one` of "+strings.Join(cluster.Names(), ", "))
	f.BoolVar(&s.explain, "explain", false, "say how this host found its place, and run nothing")
	f.StringVar(&s.restart, "restart", string(launch.RestartNever), "what to start again after a failure: `never`, failed or all")
	f.IntVar(&s.maxRestarts, "max-restarts", 3, "how often, in the whole job")
	f.BoolVar(&s.recoverable, "recoverable", false, "ranks may fail and come back while the others go on (implied by --restart failed)")
	f.DurationVar(&s.grace, "grace", 10*time.Second, "how long a rank that is told to end may take (default after SIGTERM of a scheduler: as long as the scheduler gives)")
	f.StringVar(&s.stateDir, "state-dir", "", "`directory` that keeps which rank was on which host; hosts then get their ranks back in the next run")
	f.StringVar(&s.logDir, "log-dir", "", "`directory` to write all output to, one file a rank; those of earlier runs stay")
	f.StringVar(&s.reportFile, "report-file", "", "`file` to write what became of the job to, as JSON, on the first host")
	f.BoolVar(&s.tracebacks, "no-fail-on-traceback", false, "let a rank wait to leave that has just printed a Python exception, instead of failing it at once")
	f.StringVar(&s.onHang, "on-hang", string(launch.HangReport), "what to do when ranks are stuck: `report`, abort or restart")
	f.DurationVar(&s.hangAfter, "hang-after", 0, "how long ranks that keep the others waiting may stand still before they are stuck (default 2m, 30s where they report steps, 10m before the first barrier or step, or longer where such stalls are usual)")
	f.BoolVar(&s.noStacks, "no-stacks", false, "do not look at the processes of the ranks; then no hang is found")
	f.BoolVar(&s.noShim, "no-shim", false, "do not prepare ranks in Python for serry stacks --signal")
	f.IntVar(&s.stackSignal, "stack-signal", pystack.DumpSignal, "`number` of the signal for serry stacks --signal")
	f.BoolVar(&s.noMPI, "no-mpi", false, "leave out the Open MPI variables that tell jax its rank, for programs that use a real MPI")
	f.DurationVar(&s.registerTimeout, "register-timeout", time.Hour, "how long the first rank waits for the last one")
	f.DurationVar(&s.heartbeatTimeout, "heartbeat-timeout", 100*time.Second, "how long a rank may be silent")
	f.DurationVar(&s.shutdownTimeout, "shutdown-timeout", 5*time.Minute, "how long the first rank that leaves waits for the last; 0: each leaves by itself")
	f.StringVar(&s.tls.Cert, "tls-cert", "", "PEM `file` with the certificate chain to show to the service of --service")
	f.StringVar(&s.tls.Key, "tls-key", "", "PEM `file` with its private key")
	f.StringVar(&s.tls.CA, "tls-ca", "", "PEM `file` with the roots that the service must chain to")
	f.StringVar(&s.tls.PeerPrefix, "tls-peer-prefix", "", "what a URI name of the service's certificate must begin with")
	f.StringVar(&s.logLevel, "log-level", "error", "least important lines of the service to show: debug, info, warn or `error`")
	s.page.define(f, "`address` of a page that shows the job to people with its token; a free port of this host where none is given (default on a terminal)")
	f.Lookup("web").NoOptDefVal = pageHere
	f.BoolVar(&s.noPage, "no-web", false, "serve no page on a terminal either")
}

// config turns the flags into the configuration of a job.
func (s *runSettings) config(cmd *cobra.Command, args []string) (launch.Config, error) {
	c := launch.Config{
		Command: args, Tasks: int(s.procs),
		Spares:  s.spares,
		Restart: launch.Restart(s.restart), MaxRestarts: s.maxRestarts, Recoverable: s.recoverable,
		Grace: orNone(cmd, "grace", s.grace), LogDir: s.logDir, StateDir: s.stateDir, NoMPI: s.noMPI,
		IgnoreTracebacks: s.tracebacks,
		OnHang:           launch.OnHang(s.onHang), HangAfter: s.hangAfter, NoStacks: s.noStacks,
		NoShim: s.noShim, StackSignal: s.stackSignal,
		Guard: []string{"/proc/self/exe", guardCommand}, Reap: true,
		Listen: s.listen,
		Service: server.Config{Cluster: coord.Config{
			RegisterBarrier:  true,
			RegisterTimeout:  s.registerTimeout,
			HeartbeatTimeout: s.heartbeatTimeout,
			ShutdownTimeout:  s.shutdownTimeout,
			Republished:      topo.Republished,
		}},
	}
	if s.listen != "" {
		if err := checkRunListen(s.listen, s.service); err != nil {
			return c, err
		}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return c, fmt.Errorf("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	if s.stackSignal < firstStackSignal || s.stackSignal > lastStackSignal {
		return c, fmt.Errorf("--stack-signal %d: want %d to %d, a real-time signal that the program does not use", s.stackSignal, firstStackSignal, lastStackSignal)
	}
	if s.heartbeatTimeout <= 0 {
		return c, fmt.Errorf("--heartbeat-timeout %v: want more than 0", s.heartbeatTimeout)
	}
	c.Service.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	return c, s.relay(&c)
}

// The real-time signals that glibc leaves to programs.
const firstStackSignal, lastStackSignal = 34, 64

// checkRunListen says what is wrong with --listen.
func checkRunListen(address string, service []string) error {
	if len(service) > 0 {
		return errors.New("--listen and --service exclude each other: with --service the job has no service of its own")
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--listen %q: want host:port", address)
	}
	return nil
}

// relay says how relays reach a service that runs elsewhere.
func (s *runSettings) relay(c *launch.Config) error {
	if len(s.service) == 0 {
		if !s.tls.IsZero() {
			return errors.New("--tls-cert, --tls-key, --tls-ca: they are for --service, without which nothing leaves this host")
		}
		return nil
	}
	c.Relay.Log = c.Service.Log
	var err error
	if c.Relay.Upstream, err = upstreamOf("service", s.service); err != nil || s.tls.IsZero() {
		return err
	}
	id, err := mtls.Load(s.tls)
	if err == nil {
		c.Relay.TLS = id.Client
		s.page.identity, s.page.shownOnly = id, true
	}
	return err
}

func (s *runSettings) run(cmd *cobra.Command, args []string) error {
	cfg, err := s.config(cmd, args)
	if err != nil {
		return seeHelp(cmd, err)
	}
	place, findings, err := s.locate(cmd)
	if err != nil {
		if _, told := errors.AsType[hinted](err); told {
			return err
		}
		return hinted{err, "see serry run --explain, or take --cluster none"}
	}
	for _, f := range findings {
		if f.Err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "serry: warning: %s; the place that was given is used\n", printable(f.Err.Error()))
		}
	}
	if err := settle(&cfg, place); err != nil {
		return err
	}
	scheduler := s.scheduler(cmd)
	cfg.SchedulerKills = scheduler.Known()
	if s.explain {
		return explainPlace(cmd.OutOrStdout(), cfg, place, findings, scheduler)
	}
	if len(args) == 0 {
		return errNoCommand
	}
	if err := cfg.Validate(); err != nil {
		return seeHelp(cmd, err)
	}
	if err := s.choosePage(cmd, args); err != nil {
		return seeHelp(cmd, err)
	}
	if err := checkReportFile(s.reportFile); err != nil {
		return seeHelp(cmd, err)
	}
	return runJob(cmd, cfg, s)
}

// choosePage decides whether there is a page: where it is asked for, and else on a terminal.
func (s *runSettings) choosePage(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Lookup("web").Changed
	if given && s.noPage {
		return errors.New("--web and --no-web exclude each other")
	}
	if given && s.page.listen == pageHere && addressLike(args[0]) {
		return fmt.Errorf("the command is %q: an address belongs behind an equals sign, as in --web=%s", args[0], args[0])
	}
	if !given && !s.noPage && terminal(cmd.ErrOrStderr()) >= 0 {
		s.page.listen, s.page.optional = pageHere, true
	}
	return s.page.check()
}

// pageHere is where the page of a job is unless a user wants it elsewhere.
const pageHere = "localhost:0"

// addressLike says whether a word is host:port rather than a command.
func addressLike(word string) bool {
	_, port, err := net.SplitHostPort(word)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// runJob runs a job to its end.
func runJob(cmd *cobra.Command, cfg launch.Config, s *runSettings) error {
	screen := newScreen(cmd.OutOrStdout(), cmd.ErrOrStderr())
	cfg.Display = screen
	warnOfHost(screen, &cfg)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded()...)
	defer signal.Stop(signals)
	outliveReaders()
	listed, _ := register(entry{Kind: kindRun, Tasks: cfg.Tasks * max(1, cfg.Nodes), Command: cfg.Command, TLS: listedFiles(s.tls)}) // the job runs all the same
	source := newPageSource("", s.tls)
	source.servers = newServerSurvey(cfg.Relay.Upstream, s.tls)
	cfg.Directory = directories{listed, source}
	running := &pageOfJob{}
	page, err := s.page.open(source, &pageActs{source: source, job: running}, cfg.Service.Log)
	if err != nil && s.page.optional {
		screen.Note(launch.Note{Text: "no page: " + err.Error(), Warning: true})
		err = nil
	}
	if err != nil {
		listed.remove()
		return startError(err)
	}
	defer page.close()
	if page != nil {
		screen.Note(launch.Note{Text: "page at " + page.url})
		if page.write != "" {
			screen.Note(launch.Note{Text: "page to change the job at " + page.write})
		}
	}
	job, err := launch.Start(cfg)
	if err != nil {
		listed.remove()
		return startError(err)
	}
	running.Store(job)
	door := openStacksDoor(listed.path)
	report := watch(job, screen, signals)
	door.close()
	listed.end(outcome(&report))
	if why := listed.keep(&report); cfg.Node == 0 {
		s.report(screen, &report, why)
	}
	return conclude(screen, &report, signals)
}

// report writes down what became of the job, if that is wanted.
func (s *runSettings) report(screen *screen, r *launch.Report, why *diagnose.Report) {
	if s.reportFile == "" {
		return
	}
	if err := writeReport(s.reportFile, newRunReport(r, why)); err != nil {
		screen.Note(launch.Note{Warning: true, Text: fmt.Sprintf("--report-file %s: %v", s.reportFile, err)})
	}
}

// outcome is how a job has ended, in a few words.
func outcome(r *launch.Report) string {
	switch _, err := closing(r); {
	case err == nil:
		return endedWell
	case r.First == nil && r.Interrupted != 0:
		return endedByUser
	default:
		return fit("failed: "+printable(err.Error()), maxOutcome)
	}
}

// maxOutcome is how many characters of an error are kept.
const maxOutcome = 400

// outliveReaders turns the signal for a write into a pipe without a reader into an error of that write, for
// the rest of this process: a job does not end because the reader of its output has. The signal is caught
// and not ignored, since tasks would inherit that it is ignored.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// forwarded are the signals that tasks get, too. SIGHUP that was ignored when we came, by nohup for
// one, stays so.
func forwarded() []os.Signal {
	var all []os.Signal
	for _, sig := range launch.Signals() {
		if sig != syscall.SIGHUP || !signal.Ignored(sig) {
			all = append(all, sig)
		}
	}
	return all
}

// watch passes signals on until the job is over. Nothing here writes to the terminal: a write may block,
// and a signal would wait behind it.
func watch(job *launch.Job, screen *screen, signals <-chan os.Signal) launch.Report {
	go screen.follow(job)
	for {
		select {
		case sig := <-signals:
			job.Signal(sig.(syscall.Signal))
		case <-job.Done():
			return job.Wait()
		}
	}
}

// concludePatience is how long the last words may take to be written.
const concludePatience = 10 * time.Second

// conclude says what became of the job. Where the terminal does not take it, the exit status has to say
// it all: whatever waits for that would wait for ever. It may be stdout alone that takes nothing, and keeps
// the screen busy: then stderr is written past the screen.
func conclude(screen *screen, report *launch.Report, signals <-chan os.Signal) error {
	text, err := closing(report)
	if err != nil {
		err = exitError{err, report.ExitCode()}
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		screen.close(text)
	}()
	select {
	case <-said:
		return err
	case <-signals:
	case <-time.After(concludePatience):
	}
	if err == nil {
		pastScreen(screen.stderr, text)
		return nil
	}
	pastScreen(screen.stderr, text+"serry: error: "+printable(err.Error())+"\n")
	return unsaid{err}
}

// pastScreen writes the last words in at most a second.
func pastScreen(w io.Writer, text string) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = io.WriteString(w, printable(text))
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}

// startError says why nothing could be started, with the exit status that shells have for it.
func startError(err error) error {
	if code, ok := launch.StartCode(err); ok {
		return exitError{err, code}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "listen" {
		return exitError{taken(err), launch.CodeStart}
	}
	return runError{taken(err)}
}
