package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// checkService finds a service that cannot be reached, and why.
func checkService(ctx context.Context, s *site) finding {
	st, err := s.status(ctx)
	if err == nil {
		return fine("%s answers in %v, %d ranks, attempt %d", s.address, s.took.Round(time.Millisecond), st.Size, st.Epoch)
	}
	fix := ""
	_, isName := errors.AsType[*net.DNSError](err)
	switch {
	case isName:
		fix = "the name of the service must resolve on this host: see DNS and /etc/hosts"
	case errors.Is(err, syscall.ECONNREFUSED) && s.isHere(ctx):
		fix = "start it: serry serve --tasks N"
	case errors.Is(err, syscall.ECONNREFUSED):
		fix = "start it there, on this port, and not on one interface only: serry serve --listen [::]:" + defaultPort
	case errors.Is(err, syscall.ECONNRESET):
		fix = "something on the way hangs up, such as a load balancer without a backend: use the address of the service itself"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		fix = "something on the way drops the packets: open the port in the firewall, or use an address of the network that both hosts are on"
	}
	if h, ok := errors.AsType[hinted](err); ok && fix == "" {
		fix = h.hint
	}
	return problem(fix, "%v", err)
}

// checkInterfaces finds services that listen where only some tasks can reach them.
func checkInterfaces(ctx context.Context, s *site) finding {
	host, port, ok := s.hostPort()
	if !ok {
		if _, n, some := s.number("SERRY_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"); some && n > 1 {
			return problem("give the service an address of the network: --listen [::]:"+defaultPort, "the job has %d hosts, and %s is a socket of one", n, s.address)
		}
		return fine("a socket in the file system is for one host")
	}
	all, err := s.resolve(ctx, host)
	if err != nil {
		return skipped("%s does not resolve", host)
	}
	if name, n, some := s.number("SERRY_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"); some && n > 1 && isLoopback(ctx, s, host) {
		return problem("use the name of the host that the service is on", "%s says that the job has %d hosts, and %s is another one on each", name, n, host)
	}
	if _, err := s.status(ctx); err != nil {
		return skipped("the service does not answer")
	}
	deaf := s.deaf(ctx, all, port)
	if family := oneFamily(all, deaf); family != "" {
		return problem("let the service listen on both: --listen [::]:"+port+", or give its address as a number",
			"%s is %s, and the service does not answer by %s: some clients try that first", host, addresses(all), family)
	}
	if len(deaf) > 0 {
		return problem("let the service listen on all: --listen [::]:"+port, "%s is %s, and %s does not answer", host, addresses(all), addresses(deaf))
	}
	return s.boundHere(ctx, all, port)
}

// Variables that tell jax where the service is, and where process 0 starts one of its own.
const (
	jaxAddress = "JAX_COORDINATOR_ADDRESS"
	jaxBind    = "JAX_COORDINATOR_BIND_ADDRESS"
)

// checkJaxVariables finds variables with which a jax program does not get to the service. Process 0 of jax always
// starts a service of its own, at the address of the coordinator unless the bind address names another. Where serry
// serves, that address is taken, and process 0 ends with a segmentation fault.
func checkJaxVariables(_ context.Context, s *site) finding {
	address, bind := s.variable(jaxAddress), s.variable(jaxBind)
	if address == "" && bind == "" {
		return fine("none are set; serry run sets them")
	}
	host, port, err := net.SplitHostPort(address)
	rank, number, known := s.number(rankVariables...)
	switch {
	case address == "":
		return problem("export "+jaxAddress+"="+s.address, "%s is set, and %s is not", jaxBind, jaxAddress)
	case err != nil || host == "" || port == "":
		return problem("export "+jaxAddress+"="+s.address, "%s is %q: want host:port", jaxAddress, address)
	case plainAddress(address) != plainAddress(s.address) && !strings.Contains(s.address, ","):
		return warning("export "+jaxAddress+"="+s.address, "%s is %s, and the service that was asked is at %s", jaxAddress, address, s.address)
	case bind == "" && known && number > 0:
		return fine("%s is %s; %s is %d, and only process 0 needs a bind address", jaxAddress, address, rank, number)
	case bind == "":
		return problem("export "+jaxBind+"=127.0.0.1:0", "%s is not set: process 0 would start a service of its own at %s, which is taken, and crash", jaxBind, address)
	}
	return bindFinding(address, port, bind)
}

// bindFinding judges where process 0 starts its own service.
func bindFinding(address, port, bind string) finding {
	host, taken, err := net.SplitHostPort(bind)
	if err != nil {
		return problem("export "+jaxBind+"=127.0.0.1:0", "%s is %q: want host:port", jaxBind, bind)
	}
	if a, notIP := netip.ParseAddr(host); taken != port || notIP == nil && a.IsUnspecified() {
		return fine("%s is %s", jaxAddress, address)
	}
	return problem("unset "+jaxBind+", or set it to 127.0.0.1:0 where serry is the service",
		"process 0 of jax starts a service at %s only, in the place of the one at %s", bind, address)
}

// deaf finds the addresses at which nothing answers.
func (s *site) deaf(ctx context.Context, all []netip.Addr, port string) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	errs := make([]error, len(all))
	var dials sync.WaitGroup
	for i, a := range all {
		dials.Go(func() { errs[i] = s.connect(ctx, net.JoinHostPort(a.String(), port)) })
	}
	dials.Wait()
	var deaf []netip.Addr
	for i, err := range errs {
		if err != nil {
			deaf = append(deaf, all[i])
		}
	}
	return deaf
}

// oneFamily is that of IPv4 and IPv6 by which nothing answers, while all addresses of the other one do.
func oneFamily(all, deaf []netip.Addr) string {
	four, six := 0, 0
	for _, a := range all {
		switch isDeaf := slices.Contains(deaf, a); {
		case isDeaf && a.Is4():
			four++
		case isDeaf:
			six++
		case a.Is4():
			four -= len(all) // it answers: not the whole family is deaf
		default:
			six -= len(all)
		}
	}
	switch {
	case four > 0 && six < 0:
		return "IPv4"
	case six > 0 && four < 0:
		return "IPv6"
	}
	return ""
}

// boundHere looks at the socket of a service on this host.
func (s *site) boundHere(ctx context.Context, all []netip.Addr, port string) finding {
	if !s.isHere(ctx) {
		return fine("the service answers at %s", addresses(all))
	}
	var bound []netip.Addr
	for _, k := range s.listeners(port) {
		if k.local.Addr().IsUnspecified() {
			return fine("the service listens on all interfaces")
		}
		bound = append(bound, k.local.Addr())
	}
	own, _ := s.own()
	others := slices.DeleteFunc(slices.Clone(own), func(a netip.Addr) bool { return a.IsLoopback() || a.IsLinkLocalUnicast() || slices.Contains(bound, a) })
	if len(bound) == 0 || len(others) == 0 {
		return fine("the service answers at %s", addresses(all))
	}
	return warning("--listen [::]:"+port, "the service listens on %s only: ranks that use %s do not reach it", addresses(bound), addresses(others))
}

const (
	skewWarning = time.Second
	skewProblem = 5 * time.Minute // by which certificates are dated back
)

// checkClock compares our clock with that of the service.
func checkClock(ctx context.Context, s *site) finding {
	st, err := s.status(ctx)
	if err != nil || st.Clock.IsZero() {
		return skipped("the service does not tell its clock")
	}
	skew := s.at.Sub(st.Clock).Abs()
	fix := "let both hosts keep time: chronyd, systemd-timesyncd"
	switch uncertain := s.took / 2; {
	case skew > skewProblem+uncertain:
		return problem(fix, "the clocks of this host and of the service are %v apart: certificates and preemption notices go wrong", skew.Round(time.Second))
	case skew > skewWarning+uncertain:
		return warning(fix, "the clocks of this host and of the service are %v apart", skew.Round(time.Millisecond))
	}
	return fine("as that of the service, within %v", max(skew, s.took/2).Round(time.Millisecond))
}

// countVariables are those by which launchers tell how many tasks there are, and rankVariables
// those that tell which one a process is.
var (
	countVariables = []string{"SERRY_TASKS", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE", "JAX_NUM_PROCESSES", "WORLD_SIZE"}
	rankVariables  = []string{"SERRY_TASK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK", "JAX_PROCESS_ID", "RANK"}
)

// checkTaskCount finds a service that waits for another number of tasks than were started.
func checkTaskCount(ctx context.Context, s *site) finding {
	st, err := s.status(ctx)
	if err != nil {
		return skipped("the service does not answer")
	}
	name, n, some := s.number(countVariables...)
	if _, left := s.leftover(st.Size); left {
		return skipped("variables of a scheduler are in the way")
	}
	if s.tasks > 0 {
		name, n, some = "--tasks", s.tasks, true
	}
	if some && n != st.Size {
		return problem(fmt.Sprintf("serry serve --tasks %d, or start %d", n, st.Size), "%s is %d, and the service waits for %d ranks", name, n, st.Size)
	}
	if rank, i, some := s.number(rankVariables...); some && i >= st.Size {
		return problem("ranks are numbered from 0", "%s is %d, and the service knows %d ranks", rank, i, st.Size)
	}
	if !some {
		return fine("%d, by the service; nothing here says how many there are to be", st.Size)
	}
	return fine("%d", n)
}

// checkTaskNumbers finds two processes that are the same task: by what the service saw, and among
// the processes of this host.
func checkTaskNumbers(ctx context.Context, s *site) finding {
	fix := "start each process with a number of its own; one that was restarted needs a --recoverable job"
	if st, err := s.status(ctx); err == nil {
		for _, t := range st.Tasks {
			if t.Cause == serry.ErrRestarted.Error() || t.Cause == serry.ErrWrongBeat.Error() {
				return problem(fix, "two processes were %s, %s ago", diagnose.RankText(st, t.Task), diagnose.Ago(t.ForSeconds))
			}
		}
	}
	type number struct{ address, rank string }
	first := make(map[number]process)
	for _, p := range topmost(s.processes()) {
		n := number{jobOfProcess(p), rankOfProcess(p)}
		if n.address == "" || n.rank == "" {
			continue
		}
		if other, taken := first[n]; taken {
			return problem(fix, "processes %d (%s) and %d (%s) are both rank %s of the job at %s", other.pid, other.name, p.pid, p.name, n.rank, n.address)
		}
		first[n] = p
	}
	return fine("no two processes have the same")
}

// topmost leaves out processes that a task started itself: they have its variables.
func topmost(all []process) []process {
	byPid := make(map[int]process, len(all))
	for _, p := range all {
		byPid[p.pid] = p
	}
	return slices.DeleteFunc(slices.Clone(all), func(p process) bool {
		up, known := byPid[p.parent]
		return known && jobOfProcess(up) == jobOfProcess(p) && rankOfProcess(up) == rankOfProcess(p)
	})
}

func jobOfProcess(p process) string {
	if a := variableOf(p.env, "SERRY_ADDRESS"); a != "" {
		return a
	}
	return variableOf(p.env, "JAX_COORDINATOR_ADDRESS")
}

func rankOfProcess(p process) string {
	for _, name := range rankVariables {
		if v := variableOf(p.env, name); v != "" {
			return v
		}
	}
	return ""
}

// checkEarlierRun finds what is left of a run that is over and keeps the next from beginning.
func checkEarlierRun(ctx context.Context, s *site) finding {
	if pids := staleProcesses(s.processes()); len(pids) > 0 {
		return problem("end them: kill "+strings.Join(pids, " "), "processes %s are of an earlier attempt of a job that has a later one", strings.Join(pids, ", "))
	}
	st, err := s.status(ctx)
	if err != nil {
		return fine("nothing of one runs here")
	}
	var left []string
	for _, t := range st.Tasks {
		if (t.State == wire.StateLeft || t.State == wire.StateFailed || st.Failure != "") && t.Incarnation != 0 && !t.Departed {
			left = append(left, t.Task)
		}
	}
	fix := "end their processes, or restart the service"
	switch {
	case len(left) > 0 && newcomerWaits(st):
		return problem(fix, "a new attempt waits until %s of the former one are gone", diagnose.RanksText(st, left))
	case len(left) > 0 && st.Failure != "":
		return problem(fix, "attempt %d has failed, and %s are still there: a new one cannot begin", st.Epoch, diagnose.RanksText(st, left))
	}
	return fine("nothing of one is in the way")
}

// newcomerWaits says whether tasks of the next run have come since the present one began.
func newcomerWaits(st wire.Status) bool {
	waits := false
	for _, n := range st.Notes {
		switch n.What {
		case "registration waits for the former run to depart":
			waits = true
		case "epoch opened":
			waits = false
		}
	}
	return waits
}

// staleProcesses finds tasks of serry run that are of an earlier attempt than others of the same job.
func staleProcesses(all []process) []string {
	latest := make(map[string]int)
	attempt := func(p process) (run string, n int) {
		s := &site{env: p.env}
		_, n, _ = s.number("SERRY_ATTEMPT")
		return s.variable("SERRY_RUN"), n
	}
	for _, p := range all {
		run, n := attempt(p)
		latest[run] = max(latest[run], n)
	}
	var stale []string
	for _, p := range all {
		if run, n := attempt(p); run != "" && n > 0 && n < latest[run] {
			stale = append(stale, fmt.Sprint(p.pid))
		}
	}
	return stale
}

// backendThreads is how the threads of a jax backend are called.
const backendThreads = "tf_XLA"

// checkBackend finds jax programs that used devices before they called jax.distributed.initialize:
// their backend runs, and they have not come to the service.
func checkBackend(ctx context.Context, s *site) finding {
	st, err := s.status(ctx)
	host, port, ok := s.hostPort()
	if err != nil || !ok {
		return skipped("the service does not answer on a network")
	}
	if st.Counts[wire.StateAbsent] == 0 {
		return fine("every rank has come to the service")
	}
	for _, p := range s.processes() {
		if !slices.ContainsFunc(s.threads(p.pid), func(name string) bool { return strings.HasPrefix(name, backendThreads) }) {
			continue
		}
		talks := slices.DeleteFunc(s.sockets(fmt.Sprint(p.pid)), func(k socket) bool {
			return k.state != socketConnected || fmt.Sprint(k.remote.Port()) != port
		})
		if s.holds(p.pid, talks) {
			continue
		}
		fix := "call jax.distributed.initialize() before anything that uses devices, even jax.devices() or jax.numpy at the top of a module"
		if job := jobOfProcess(p); job == s.address || job == net.JoinHostPort(host, port) {
			return problem(fix, "process %d (%s) uses devices already and has not come to the service", p.pid, p.name)
		}
		return warning(fix, "process %d (%s) uses devices and has no connection to the service; is it a rank of the job?", p.pid, p.name)
	}
	return fine("no program here uses devices without having come to the service")
}
