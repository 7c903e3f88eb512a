package main

// A metric is something measured of every peer.
type metric int

const (
	connectTime metric = iota
	resident
	barrierTime
	arrivalCPU
	callsRefused
	sharedBarrierTime
	sharedArrivalCPU
	keys1Rate
	keys1CPU
	keys16Rate
	keys16CPU
	keysSharedRate
	keysSharedCPU
	aliveTime
	aliveCPU
	watchTime
	watchCPU
	secureConnect
	secureResident
	secureBarrier
	secureArrivalCPU
	secureKeysRate
	secureKeysCPU
	hostsRegister
	hostsBarrier
	hostsMemory
	crowdRegister
	crowdBarrier
	crowdCPU
	crowdMemory
	metrics // how many there are
)

// The groups that -only chooses from.
const (
	groupConnect = "connect"
	groupBarrier = "barrier"
	groupShared  = "shared"
	groupKeys    = "keys"
	groupAlive   = "alive"
	groupWatch   = "watch"
	groupTLS     = "tls"
	groupScale   = "scale"
)

func groups() []string {
	return []string{groupConnect, groupBarrier, groupShared, groupKeys, groupAlive, groupWatch, groupTLS, groupScale}
}

// A definition says how a metric is shown and what is demanded of it.
type definition struct {
	group, label, unit string
	at                 int   // bars hold for so many tasks
	grpc, front        limit // by transport
}

// The numbers of tasks that bars are about.
const (
	barTasks      = 512
	barAliveTasks = 2048
	barCrowd      = 10_000
)

// A limit is the most that a figure may be: times the stock service's, or in the unit of the row.
type limit struct {
	ratio, value float64 // zero: none
}

func ratio(r float64) limit { return limit{ratio: r} }
func most(v float64) limit  { return limit{value: v} }

const third = 1. / 3

// define describes a metric. The bars are those of the project: what serry promises of each
// transport on the machine it is measured on.
func (m metric) define() definition {
	return [metrics]definition{
		connectTime:       {group: groupConnect, label: "connect and register all", unit: "ms"},
		resident:          {groupConnect, "resident memory, connected", "MiB", barTasks, most(60), most(30)},
		barrierTime:       {groupBarrier, "barrier, first arrival to last reply", "ms", barTasks, ratio(1), ratio(1)},
		arrivalCPU:        {groupBarrier, "server CPU per arrival", "us", barTasks, ratio(1), ratio(third)},
		callsRefused:      {group: groupBarrier, label: "calls refused in bursts and sent again", unit: "calls"},
		sharedBarrierTime: {group: groupShared, label: "barrier, all tasks on one connection", unit: "ms"},
		sharedArrivalCPU:  {groupShared, "server CPU per arrival, one connection", "us", barTasks, ratio(1), ratio(third)},
		keys1Rate:         {group: groupKeys, label: "set/get, 1 caller", unit: "calls/s"},
		keys1CPU:          {groupKeys, "server CPU per call, 1 caller", "us", barTasks, ratio(1.4), ratio(third)},
		keys16Rate:        {group: groupKeys, label: "set/get, 16 callers, a connection each", unit: "calls/s"},
		keys16CPU:         {groupKeys, "server CPU per call, 16 callers, a connection each", "us", barTasks, ratio(1.4), ratio(third)},
		keysSharedRate:    {group: groupKeys, label: "set/get, 16 callers, one connection", unit: "calls/s"},
		keysSharedCPU:     {groupKeys, "server CPU per call, 16 callers, one connection", "us", barTasks, ratio(1), ratio(third)},
		aliveTime:         {groupAlive, "live set of all, asked by all", "ms", barAliveTasks, ratio(0.1), ratio(0.1)},
		aliveCPU:          {group: groupAlive, label: "server CPU per live set call", unit: "us"},
		watchTime:         {group: groupWatch, label: "one failure to the last watcher", unit: "ms"},
		watchCPU:          {group: groupWatch, label: "server CPU per watcher told", unit: "us"},
		secureConnect:     {group: groupTLS, label: "mTLS: connect and register all", unit: "ms"},
		secureResident:    {group: groupTLS, label: "mTLS: resident memory, connected", unit: "MiB"},
		secureBarrier:     {group: groupTLS, label: "mTLS: barrier", unit: "ms"},
		secureArrivalCPU:  {group: groupTLS, label: "mTLS: server CPU per arrival", unit: "us", at: barTasks, front: ratio(0.4)},
		secureKeysRate:    {group: groupTLS, label: "mTLS: set/get, 16 callers, a connection each", unit: "calls/s"},
		secureKeysCPU:     {group: groupTLS, label: "mTLS: server CPU per call, 16 callers", unit: "us", at: barTasks, front: ratio(0.4)},
		hostsRegister:     {groupScale, "many tasks a connection: connect and register all", "ms", barCrowd, most(10_000), most(10_000)},
		hostsBarrier:      {groupScale, "many tasks a connection: barrier", "ms", barCrowd, most(1000), most(1000)},
		hostsMemory:       {groupScale, "many tasks a connection: most memory held", "MiB", barCrowd, most(1024), most(1024)},
		crowdRegister:     {group: groupScale, label: "a connection each: connect and register all", unit: "ms"},
		crowdBarrier:      {group: groupScale, label: "a connection each: barrier", unit: "ms"},
		crowdCPU:          {group: groupScale, label: "a connection each: server CPU per arrival", unit: "us"},
		crowdMemory:       {group: groupScale, label: "a connection each: most memory held", unit: "MiB"},
	}[m]
}
