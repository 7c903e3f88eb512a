package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/launch/host"
)

// checkHostName finds hosts that tell others an address at which only they themselves can be
// reached: tasks publish what their host name resolves to.
func checkHostName(ctx context.Context, s *site) finding {
	if s.address == "" {
		return skipped("the job is on this host alone")
	}
	name, err := s.hostname()
	if err != nil {
		return problem("give the host a name", "this host has no name: %v", err)
	}
	found, err := s.resolve(ctx, name)
	if err != nil || len(found) == 0 {
		return problem(fmt.Sprintf("add %s with its address to DNS or /etc/hosts", name), "%s, the name of this host, does not resolve", name)
	}
	if slices.ContainsFunc(found, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		return fine("%s is %s", name, addresses(found))
	}
	if host, _, remote := s.hostPort(); !remote || isLoopback(ctx, s, host) {
		return fine("%s is %s, which is enough on one host", name, addresses(found))
	}
	return problem(fmt.Sprintf("give %s the address of its network interface in /etc/hosts", name),
		"%s resolves to %s, which other hosts take for themselves", name, addresses(found))
}

// isLoopback says whether a host is always the one that asks.
func isLoopback(ctx context.Context, s *site, host string) bool {
	found, err := s.resolve(ctx, host)
	return err == nil && !slices.ContainsFunc(found, func(a netip.Addr) bool { return !a.IsLoopback() })
}

func addresses(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// checkProxies finds variables that send calls to the service through an HTTP proxy (A-ATT-7,
// C-ENV-9).
func checkProxies(_ context.Context, s *site) finding {
	host, _, ok := s.hostPort()
	if !ok {
		return fine("a socket in the file system has no proxy")
	}
	var obeyed, others []string
	for _, v := range s.env {
		name, value, _ := strings.Cut(v, "=")
		switch lower := strings.ToLower(name); {
		case value == "" || !strings.Contains(lower, "_proxy") || strings.HasPrefix(lower, "no_"):
		case slices.Contains([]string{"grpc_proxy", "https_proxy", "http_proxy"}, name):
			obeyed = append(obeyed, name)
		default:
			others = append(others, name)
		}
	}
	exempt := s.variable("no_grpc_proxy")
	if exempt == "" {
		exempt = s.variable("no_proxy")
	}
	slices.Sort(obeyed)
	slices.Sort(others)
	switch {
	case len(obeyed) == 0 && len(others) == 0:
		return fine("none are set")
	case exempts(exempt, host):
		return fine("%s is exempt from them", host)
	case len(obeyed) > 0:
		return problem(fmt.Sprintf("unset %s, or: export no_proxy=%s", strings.Join(obeyed, " "), strings.TrimPrefix(exempt+","+host, ",")),
			"gRPC calls %s through the proxy of %s", host, strings.Join(obeyed, ", "))
	}
	return warning("unset them for the ranks", "%s are set; jax warns of them", strings.Join(others, ", "))
}

// exempts says whether a list such as no_proxy has a host in it, by name or by the end of it.
func exempts(list, host string) bool {
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if part == "*" || part != "" && (host == part || strings.HasSuffix(host, "."+strings.TrimPrefix(part, "."))) {
			return true
		}
	}
	return false
}

// checkPort finds a port that something else has taken where the service is to run.
func checkPort(ctx context.Context, s *site) finding {
	_, port, ok := s.hostPort()
	if !ok || !s.isHere(ctx) {
		return skipped("the service is not to run here")
	}
	_, failed := s.status(ctx)
	if failed == nil {
		return fine("%s is the service's", port)
	}
	err := s.listen(net.JoinHostPort("", port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && (errors.Is(failed, errWantsTLS) || strings.HasPrefix(s.owner(port), "serry ")):
		return skipped("%s is that of a service, which this command could not ask: see above", port)
	case err == nil:
		return fine("%s is free", port)
	case errors.Is(err, syscall.EADDRINUSE) && errors.Is(failed, errSaidNothing): // a healthy service may be there
		return problem("if it wants certificates, see above; else let the service --listen on another port", "%s is taken by %s", port, s.owner(port))
	case errors.Is(err, syscall.EADDRINUSE):
		return problem("end it, or let the service --listen on another port", "%s is taken by %s", port, s.owner(port))
	case errors.Is(err, syscall.EACCES):
		return problem("take a port from 1024 on", "%s may not be used: %v", port, err)
	}
	return problem("", "%s cannot be used: %v", port, err)
}

// checkIPv6 finds hosts on which the default of --listen does not work.
func checkIPv6(_ context.Context, s *site) finding {
	if err := s.listen("[::]:0"); err != nil {
		return warning("serry serve --listen 0.0.0.0:"+defaultPort, "this host cannot listen on [::], the default of serry serve")
	}
	return fine("this host can listen on [::]")
}

// checkCertificate finds one that has run out or is about to.
func checkCertificate(_ context.Context, s *site) finding {
	if s.cert == "" {
		return skipped("TLS is not used")
	}
	info, err := readCertificate(s.cert, s.now())
	left := info.Until.Sub(s.now())
	fix := "issue another: serry cert issue, or as you made this one"
	switch {
	case err != nil:
		return problem("--tls-cert names a PEM file, leaf first", "%v", err)
	case left <= 0:
		return problem(fix, "%s ran out %s", s.cert, info.Until.Format(time.DateTime))
	case !info.Good:
		return problem("set the clock of this host", "%s is not good before %s", s.cert, info.From.Format(time.DateTime))
	case left < certificateNotice:
		return warning(fix, "%s is good until %s only", s.cert, info.Until.Format(time.DateTime))
	}
	return fine("%s is good until %s", s.cert, info.Until.Format(time.DateOnly))
}

const certificateNotice = 7 * 24 * time.Hour

const (
	filesLeast   = 1024 // that any task should be able to open
	filesPerTask = 4    // connections to each other task, with room
	filesBeside  = 256  // for all else
)

// checkOpenFiles finds limits below what connections to every other task take. Programs in Go raise
// theirs as far as they may; others start with that of who starts them.
func checkOpenFiles(ctx context.Context, s *site) finding {
	soft, hard, err := s.fileLimits()
	if err != nil {
		return skipped("the limit is not known: %v", err)
	}
	need := filesLeast
	if n := s.size(ctx); n > 0 {
		need = max(need, filesPerTask*n+filesBeside)
	}
	switch {
	case hard < need:
		return problem(fmt.Sprintf("raise the hard limit to %d, in limits.conf or where the container is started", need),
			"a process may open %d files at most, %d are needed", hard, need)
	case soft < need:
		return warning(fmt.Sprintf("ulimit -n %d where ranks are started", need), "ranks start with a limit of %d open files, %d may be needed", soft, need)
	}
	return fine("a process may open %d", soft)
}

// fileLimits reads what our parent may open, because our own limit was raised when we started.
func (s *site) fileLimits() (soft, hard int, err error) {
	text, err := fs.ReadFile(s.root, fmt.Sprintf("proc/%d/limits", s.parent))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(text), "Max open files")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, 0, errors.New("no line for open files")
	}
	limits := make([]int, 2)
	for i := range limits {
		if limits[i], err = strconv.Atoi(fields[i]); fields[i] == "unlimited" {
			limits[i], err = 1<<30, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return limits[0], limits[1], nil
}

// checkMachine takes over what package host finds out under that id.
func checkMachine(id string) func(context.Context, *site) finding {
	return func(_ context.Context, s *site) finding {
		for _, f := range s.machine() {
			switch {
			case f.ID != id:
			case f.Severity == host.Failure:
				return problem(f.Remedy, "%s", f.Observed)
			default:
				return warning(f.Remedy, "%s", f.Observed)
			}
		}
		return fine("as it should be")
	}
}
