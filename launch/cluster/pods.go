package cluster

import (
	"context"
	"errors"
	"hash/fnv"
	"net"
	"strconv"
	"strings"
)

// What LeaderWorkerSet and SkyPilot leave in the environment (DLV-25). jax does not read it.

const lwsLeader = "LWS_LEADER_ADDRESS"

var lwsVariables = []string{lwsLeader, "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"}

// resolveLWS finds the place of a pod in its group: the leader is number 0. Each pod has a network of its own, so
// every port is free.
func resolveLWS(_ context.Context, sys System) (p Place, err error) {
	if p.Processes, err = sys.needed("LWS_GROUP_SIZE"); err != nil {
		return p, err
	}
	p.ID, err = sys.needed("LWS_WORKER_INDEX")
	p.Address = Value[string]{net.JoinHostPort(sys.env(lwsLeader), kubernetesPort), lwsLeader}
	return p, err
}

const (
	skyNodes = "SKYPILOT_NODE_IPS"
	skyTask  = "SKYPILOT_TASK_ID"
)

var skyVariables = []string{skyNodes, "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK"}

// resolveSkyPilot finds the place of a node; the addresses of all nodes are lines of a variable. Several tasks may run
// on the same nodes, so the name of the task decides the port.
func resolveSkyPilot(_ context.Context, sys System) (p Place, err error) {
	if p.Processes, err = sys.needed("SKYPILOT_NUM_NODES"); err != nil {
		return p, err
	}
	if p.ID, err = sys.needed("SKYPILOT_NODE_RANK"); err != nil {
		return p, err
	}
	nodes := strings.Fields(sys.env(skyNodes))
	if len(nodes) == 0 {
		return p, errors.New(skyNodes + " has no address")
	}
	p.Job = sys.text(skyTask)
	hash := fnv.New32a()
	hash.Write([]byte(p.Job.Is)) // never fails
	port := strconv.Itoa(int(hash.Sum32()%portRange) + firstPort)
	p.Address = Value[string]{net.JoinHostPort(nodes[0], port), skyNodes + ", " + skyTask}
	return p, nil
}
