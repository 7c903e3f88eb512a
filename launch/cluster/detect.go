package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Auto and None are names for [Detect]: take the first environment that is there; look for none.
const (
	Auto = "auto"
	None = "none"
)

// A Finding is what was made of one environment.
type Finding struct {
	Name    string
	Present bool
	Why     string // or why not
	Used    bool
	Err     error // why it could not be used, though it is there; or nil
}

// A method finds a place in one kind of environment.
type method struct {
	name    string
	present func(context.Context, System) (bool, string)
	resolve func(context.Context, System) (Place, error) // with the port of jax
}

// methods are those that are tried, in the order in which jax tries them (C-ENV-4). jax does not know the last three
// (P-ENV-2, DLV-25).
func methods() []method {
	return []method{
		{"ompi", presentOpenMPI, resolveOpenMPI},
		{"slurm", allSet(slurmNodes, slurmVariables), resolveSlurm},
		{"gcetpu", presentGCE, resolveGCE},
		{"gketpu", presentGKE, resolveGKE},
		{"k8s", presentKubernetes, resolveKubernetes},
		{"torchrun", allSet("MASTER_ADDR", torchrunVariables), resolveTorchrun},
		{"lws", allSet(lwsLeader, lwsVariables), resolveLWS},
		{"skypilot", allSet(skyNodes, skyVariables), resolveSkyPilot},
	}
}

// allSet is present for environments that are known by their variables; one of them stands for all.
func allSet(one string, all []string) func(context.Context, System) (bool, string) {
	return func(_ context.Context, sys System) (bool, string) {
		if name := sys.missing(all...); name != "" {
			return false, name + " is not set"
		}
		return true, one + " is set"
	}
}

// Names are the environments that can be asked for.
func Names() []string {
	var names []string
	for _, m := range methods() {
		names = append(names, m.name)
	}
	return names
}

// Detect fills in what given does not know. name is [Auto], [None], or one environment, which must
// then be there (P-ENV-3). Where nothing is missing, nothing is looked for (C-ENV-2, C-ENV-5). Where only the
// devices are missing, an environment that cannot be read is no error: its finding has it.
func Detect(ctx context.Context, sys System, given Place, name string) (Place, []Finding, error) {
	sys = sys.withDefaults()
	if name == None || given.complete() {
		return given, nil, nil
	}
	if name != Auto && !slices.Contains(Names(), name) {
		return given, nil, fmt.Errorf("cluster environment %q: want %s, %s or one of %s", name, Auto, None, strings.Join(Names(), ", "))
	}
	var findings []Finding
	var use *method
	at := 0 // the finding that is used
	for _, m := range methods() {
		f := Finding{Name: m.name}
		f.Present, f.Why = m.present(ctx, sys)
		if use == nil && (m.name == name || name == Auto && f.Present) {
			use, f.Used, at = &m, true, len(findings)
		}
		findings = append(findings, f)
		if m.name == name && !f.Present {
			return given, findings, fmt.Errorf("cluster environment %s is not there: %s", name, f.Why)
		}
	}
	if use == nil {
		return given, findings, nil
	}
	found, err := use.resolve(ctx, sys)
	if err != nil {
		err = fmt.Errorf("cluster environment %s: %w", use.name, err)
		if given.placed() { // DLV-24: only the devices could have been found
			findings[at].Used, findings[at].Err = false, err
			return given, findings, nil
		}
		return given, findings, err
	}
	if port := sys.env("JAX_COORDINATOR_PORT"); port != "" && found.Address.Known() {
		host, _, err := net.SplitHostPort(found.Address.Is)
		if err != nil {
			return given, findings, err
		}
		found.Address = Value[string]{net.JoinHostPort(host, port), found.Address.From + ", JAX_COORDINATOR_PORT"}
	}
	return given.or(found), findings, nil
}
