package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A Value is something known of a place, and who says so. It is not known while From is empty.
type Value[T any] struct {
	Is   T
	From string // "--node-rank", "SLURM_PROCID"
}

// Known says whether there is a value.
func (v Value[T]) Known() bool { return v.From != "" }

// or is v, or else another value.
func (v Value[T]) or(w Value[T]) Value[T] {
	if v.Known() {
		return v
	}
	return w
}

// A Place is where a process stands in its job.
type Place struct {
	Address   Value[string] // of the coordinator, host:port
	Processes Value[int]    // how many there are
	ID        Value[int]    // which one this is, from 0
	Devices   Value[[]int]  // of this host that are its own

	// Job names the job: all its processes have the same name, and no other job has it that could come to the same
	// address. It is not known where the address was given, because then the user decides which processes belong
	// together: the launchers of one job may be started by several steps of a scheduler.
	Job Value[string]
}

// or fills in what p does not know.
func (p Place) or(q Place) Place {
	filled := Place{
		Address: p.Address.or(q.Address), Processes: p.Processes.or(q.Processes),
		ID: p.ID.or(q.ID), Devices: p.Devices.or(q.Devices), Job: p.Job,
	}
	if !p.Address.Known() {
		filled.Job = p.Job.or(q.Job)
	}
	return filled
}

// complete says whether nothing is left to find out.
func (p Place) complete() bool {
	return p.Address.Known() && p.Processes.Known() && p.ID.Known() && p.Devices.Known()
}

// placed says whether the place is known; only the devices may be missing.
func (p Place) placed() bool { return p.Address.Known() && p.Processes.Known() && p.ID.Known() }

// Validate says what is wrong with a place that a process is to take, if anything (C-ENV-7).
func (p Place) Validate() error {
	switch _, _, err := net.SplitHostPort(p.Address.Is); {
	case !p.Address.Known():
		return errors.New("the address of the coordinator is not known")
	case err != nil:
		return fmt.Errorf("address of the coordinator %q, from %s: want host:port", p.Address.Is, p.Address.From)
	case !p.Processes.Known():
		return errors.New("the number of processes is not known")
	case !p.ID.Known():
		return errors.New("the number of this process is not known")
	case p.ID.Is < 0 || p.ID.Is >= p.Processes.Is:
		return fmt.Errorf("process %d (from %s) of %d (from %s): want 0 to %d",
			p.ID.Is, p.ID.From, p.Processes.Is, p.Processes.From, p.Processes.Is-1)
	}
	return nil
}

// Bind is where the coordinator with an address listens if nothing else is said: on its port, on
// every interface (C-ENV-1).
func Bind(address string) (string, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("::", port), nil
}

// FromEnvironment is what variables say of the place (C-ENV-1). Those for the number of processes and
// for the own number are not read by jax, but set by many launchers of it (P-ENV-2).
func FromEnvironment(sys System) (Place, error) {
	var p Place
	if address := sys.env("JAX_COORDINATOR_ADDRESS"); address != "" {
		p.Address = Value[string]{address, "JAX_COORDINATOR_ADDRESS"}
	}
	var errs [3]error
	p.Processes, errs[0] = sys.number("JAX_NUM_PROCESSES")
	p.ID, errs[1] = sys.number("JAX_PROCESS_ID")
	if list := sys.env("JAX_LOCAL_DEVICE_IDS"); list != "" {
		var ids []int
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				errs[2] = fmt.Errorf("JAX_LOCAL_DEVICE_IDS %q: want numbers with commas between them", list)
				break
			}
			ids = append(ids, n)
		}
		p.Devices = Value[[]int]{ids, "JAX_LOCAL_DEVICE_IDS"}
	}
	return p, errors.Join(errs[:]...)
}
