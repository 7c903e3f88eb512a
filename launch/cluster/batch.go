package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// What Open MPI, Slurm and torchrun leave in the environment.

const (
	orteURI   = "OMPI_MCA_orte_hnp_uri"
	mpiSize   = "OMPI_COMM_WORLD_SIZE"
	mpiRank   = "OMPI_COMM_WORLD_RANK"
	mpiLocal  = "OMPI_COMM_WORLD_LOCAL_RANK"
	firstPort = 61440 // of the range that ports of jobs are taken from
	portRange = 4096
)

// presentOpenMPI knows Open MPI before version 5 by the address of its daemon, and later ones by the
// ranks alone (C-ENV-10, P-ENV-2).
func presentOpenMPI(_ context.Context, sys System) (bool, string) {
	if sys.env(orteURI) != "" {
		return true, orteURI + " is set"
	}
	if name := sys.missing(mpiSize, mpiRank, mpiLocal); name != "" {
		return false, fmt.Sprintf("neither %s nor %s is set", orteURI, name)
	}
	return true, mpiRank + " is set"
}

func resolveOpenMPI(_ context.Context, sys System) (p Place, err error) {
	if p, err = ranks(sys, mpiSize, mpiRank, mpiLocal); err != nil || sys.env(orteURI) == "" {
		return p, err // from version 5 on Open MPI tells no address
	}
	uri := sys.env(orteURI)
	address, err := addressOfORTE(uri)
	number, _, _ := strings.Cut(uri, ".")
	p.Address, p.Job = Value[string]{address, orteURI}, Value[string]{number, orteURI}
	return p, err
}

// ranks reads the numbers that every batch system has, under its own names.
func ranks(sys System, size, rank, local string) (p Place, err error) {
	if p.Processes, err = sys.needed(size); err != nil {
		return p, err
	}
	if p.ID, err = sys.needed(rank); err != nil {
		return p, err
	}
	id, err := sys.needed(local)
	p.Devices = Value[[]int]{[]int{id.Is}, local}
	return p, err
}

// orteHost is the first address of a URI such as 12.0;tcp://10.0.0.1,10.1.0.1:34911, or with brackets
// around all addresses for version 6 of IP.
var orteHost = regexp.MustCompile(`tcp://([^,:]+)[,:]|tcp6://\[([^,\]]+)[,\]]`)

func addressOfORTE(uri string) (string, error) {
	number, _, _ := strings.Cut(uri, ".")
	job, err := strconv.ParseUint(number, 10, 64)
	hosts := orteHost.FindStringSubmatch(uri)
	if err != nil || hosts == nil {
		return "", fmt.Errorf("%s %q: no number of a job, or no address", orteURI, uri)
	}
	// The numbers of jobs are multiples of 4096.
	return net.JoinHostPort(hosts[1]+hosts[2], strconv.FormatUint(job/portRange%portRange+firstPort, 10)), nil
}

const slurmNodes = "SLURM_STEP_NODELIST"

var slurmVariables = []string{"SLURM_JOB_ID", slurmNodes, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"}

// ForgottenStep says whether this process is inside a Slurm job of several nodes, but in none of its steps: it was
// started by the batch script, on the first node alone (DLV-20). nodes is how many the job has.
func ForgottenStep(sys System) (nodes int, forgotten bool) {
	sys = sys.withDefaults()
	n, err := sys.number("SLURM_JOB_NUM_NODES")
	return n.Is, err == nil && n.Is > 1 && sys.env("SLURM_JOB_ID") != "" && sys.env(slurmNodes) == ""
}

func resolveSlurm(_ context.Context, sys System) (p Place, err error) {
	if p, err = ranks(sys, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"); err != nil {
		return p, err
	}
	job, err := sys.needed("SLURM_JOB_ID")
	if err != nil {
		return p, err
	}
	step, err := sys.number(slurmStep)
	if err != nil {
		return p, err
	}
	host, err := firstHost(sys.env(slurmNodes))
	port := (job.Is+step.Is*stepStride)%portRange + firstPort
	p.Address = Value[string]{net.JoinHostPort(host, strconv.Itoa(port)), slurmNodes + ", SLURM_JOB_ID, " + slurmStep}
	p.Job = Value[string]{fmt.Sprintf("%d.%d", job.Is, step.Is), "SLURM_JOB_ID, " + slurmStep}
	return p, err
}

// Steps of one Slurm job run on the same nodes at the same time, so each needs a port of its own (DLV-21). The first
// step has the port that jax takes. The ports of further steps are stepStride apart, so that they are not those of
// the jobs with the next numbers, which may run on the same nodes, too.
const (
	slurmStep  = "SLURM_STEP_ID"
	stepStride = 509
)

// firstHost is the first of a list of hosts as Slurm writes them: names with commas between them,
// where brackets stand for several: rack[1-2,5]n[001-015],host2 (C-ENV-11).
func firstHost(list string) (string, error) {
	var host strings.Builder
	for rest := list; rest != ""; {
		i := strings.IndexAny(rest, ",[]")
		if i < 0 {
			host.WriteString(rest)
			break
		}
		host.WriteString(rest[:i])
		if rest[i] == ',' {
			break
		}
		inner, after, closed := strings.Cut(rest[i+1:], "]")
		if rest[i] == ']' || !closed {
			return "", fmt.Errorf("list of hosts %q: brackets do not match", list)
		}
		first, _, _ := strings.Cut(inner, ",")
		first, _, _ = strings.Cut(first, "-")
		host.WriteString(first)
		rest = after
	}
	if host.Len() == 0 {
		return "", fmt.Errorf("list of hosts %q: it is empty", list)
	}
	return host.String(), nil
}

var torchrunVariables = []string{"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"}

func resolveTorchrun(_ context.Context, sys System) (p Place, err error) {
	if p, err = ranks(sys, "WORLD_SIZE", "RANK", "LOCAL_RANK"); err != nil {
		return p, err
	}
	// The port itself is in use by torch.
	port, err := sys.needed("MASTER_PORT")
	if port.Is++; err == nil && port.Is > 65535 {
		err = errors.New("MASTER_PORT: there is no port after it")
	}
	p.Address = Value[string]{net.JoinHostPort(sys.env("MASTER_ADDR"), strconv.Itoa(port.Is)), "MASTER_ADDR, MASTER_PORT"}
	p.Job = sys.text("TORCHELASTIC_RUN_ID")
	return p, err
}
