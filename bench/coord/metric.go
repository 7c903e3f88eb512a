package main

// A metric is something measured of every peer.
type metric int

const (
	connectTime metric = iota
	resident
	goroutines
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
	realResident
	realBarrier
	realArrivalCPU
	realKeysCPU
	realSharedBarrier
	realSharedArrivalCPU
	realSharedKeysCPU
	hostsRegister
	hostsBarrier
	hostsMemory
	crowdRegister
	crowdBarrier
	crowdCPU
	crowdMemory
	streamsRegister
	streamsBarrier
	streamsCPU
	streamsMemory
	streamsKeysRate
	streamsKeysCPU
	streamKeysRate
	streamKeysCPU
	largeValueMemory
	announcedMemory
	bombMemory
	bombCPU
	resetMemory
	resetCPU
	continuationCPU
	pingCPU
	settingsCPU
	emptyDataCPU
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
	groupReal    = "jaxlib"
	groupScale   = "scale"
	groupStreams = "streams"
	groupAbuse   = "abuse"
)

func groups() []string {
	return []string{groupConnect, groupBarrier, groupShared, groupKeys, groupAlive, groupWatch, groupTLS, groupReal, groupScale, groupStreams, groupAbuse}
}

// A definition says how a metric is shown and what is demanded of it.
type definition struct {
	group, label, unit string
	at                 []int // bars hold for these numbers of tasks
	bar                limit
}

// The numbers of tasks that bars are about.
const (
	fewTasks      = 64
	barTasks      = 512
	barAliveTasks = 2048
	barCrowd      = 10_000
)

// A limit is the most, or the least, that a figure may be: times the stock service's, or in the unit of
// the row.
type limit struct {
	ratio, value float64 // zero: none
	least        float64 // the least, instead; zero: none
}

func ratio(r float64) limit { return limit{ratio: r} }
func most(v float64) limit  { return limit{value: v} }
func least(v float64) limit { return limit{least: v} }

const third = 1. / 3

// define describes a metric. The bars are those of the project: what serry promises on the machine
// it is measured on.
func (m metric) define() definition {
	many, both, crowd := []int{barTasks}, []int{fewTasks, barTasks}, []int{barCrowd}
	return [metrics]definition{
		connectTime:          {group: groupConnect, label: "connect and register all", unit: "ms"},
		resident:             {groupConnect, "resident memory, connected", "MiB", many, most(30)},
		goroutines:           {group: groupConnect, label: "goroutines beyond connections, all waiting", unit: "", at: many, bar: most(20)},
		barrierTime:          {groupBarrier, "barrier, first arrival to last reply", "ms", both, ratio(1)},
		arrivalCPU:           {groupBarrier, "server CPU per arrival", "us", many, ratio(third)},
		callsRefused:         {group: groupBarrier, label: "calls refused in bursts and sent again", unit: "calls"},
		sharedBarrierTime:    {group: groupShared, label: "barrier, all tasks on one connection", unit: "ms"},
		sharedArrivalCPU:     {groupShared, "server CPU per arrival, one connection", "us", many, ratio(third)},
		keys1Rate:            {group: groupKeys, label: "set/get, 1 caller", unit: "calls/s"},
		keys1CPU:             {groupKeys, "server CPU per call, 1 caller", "us", many, ratio(third)},
		keys16Rate:           {group: groupKeys, label: "set/get, 16 callers, a connection each", unit: "calls/s"},
		keys16CPU:            {groupKeys, "server CPU per call, 16 callers, a connection each", "us", many, ratio(third)},
		keysSharedRate:       {group: groupKeys, label: "set/get, 16 callers, one connection", unit: "calls/s"},
		keysSharedCPU:        {groupKeys, "server CPU per call, 16 callers, one connection", "us", many, ratio(third)},
		aliveTime:            {groupAlive, "live set of all, asked by all", "ms", []int{barAliveTasks}, ratio(0.3)},
		aliveCPU:             {groupAlive, "server CPU per live set call", "us", []int{barAliveTasks}, ratio(0.2)},
		watchTime:            {group: groupWatch, label: "one failure to the last watcher", unit: "ms"},
		watchCPU:             {group: groupWatch, label: "server CPU per watcher told", unit: "us"},
		secureConnect:        {group: groupTLS, label: "mTLS: connect and register all", unit: "ms"},
		secureResident:       {group: groupTLS, label: "mTLS: resident memory, connected", unit: "MiB"},
		secureBarrier:        {group: groupTLS, label: "mTLS: barrier", unit: "ms"},
		secureArrivalCPU:     {group: groupTLS, label: "mTLS: server CPU per arrival", unit: "us", at: many, bar: ratio(0.4)},
		secureKeysRate:       {group: groupTLS, label: "mTLS: set/get, 16 callers, a connection each", unit: "calls/s"},
		secureKeysCPU:        {group: groupTLS, label: "mTLS: server CPU per call, 16 callers", unit: "us", at: many, bar: ratio(0.4)},
		realResident:         {groupReal, "jaxlib: resident memory, connected", "MiB", many, most(30)},
		realBarrier:          {groupReal, "jaxlib: barrier, clients included", "ms", both, ratio(1)},
		realArrivalCPU:       {groupReal, "jaxlib: server CPU per arrival", "us", many, ratio(third)},
		realKeysCPU:          {groupReal, "jaxlib: server CPU per set/get, 16 callers", "us", many, ratio(third)},
		realSharedBarrier:    {group: groupReal, label: "jaxlib: barrier, one connection, clients included", unit: "ms"},
		realSharedArrivalCPU: {groupReal, "jaxlib: server CPU per arrival, one connection", "us", many, ratio(third)},
		realSharedKeysCPU:    {groupReal, "jaxlib: server CPU per set/get, one connection", "us", many, ratio(third)},
		hostsRegister:        {groupScale, "many tasks a connection: connect and register all", "ms", crowd, most(10_000)},
		hostsBarrier:         {groupScale, "many tasks a connection: barrier", "ms", crowd, most(1000)},
		hostsMemory:          {groupScale, "many tasks a connection: most memory held", "MiB", crowd, most(1024)},
		crowdRegister:        {group: groupScale, label: "a connection each: connect and register all", unit: "ms"},
		crowdBarrier:         {group: groupScale, label: "a connection each: barrier", unit: "ms"},
		crowdCPU:             {group: groupScale, label: "a connection each: server CPU per arrival", unit: "us"},
		crowdMemory:          {group: groupScale, label: "a connection each: most memory held", unit: "MiB"},
		streamsRegister:      {group: groupStreams, label: "1,250 streams: connect and register all", unit: "ms"},
		streamsBarrier:       {groupStreams, "1,250 streams: barrier", "ms", crowd, most(300)},
		streamsCPU:           {groupStreams, "1,250 streams: server CPU per arrival", "us", crowd, ratio(third)},
		streamsMemory:        {group: groupStreams, label: "1,250 streams: most memory held", unit: "MiB"},
		streamsKeysRate:      {group: groupStreams, label: "set/get, 16 callers, a stream each", unit: "calls/s"},
		streamsKeysCPU:       {groupStreams, "server CPU per call, 16 callers, a stream each", "us", crowd, ratio(third)},
		streamKeysRate:       {groupStreams, "set/get, 16 callers, one stream", "calls/s", crowd, least(60_000)},
		streamKeysCPU:        {groupStreams, "server CPU per call, 16 callers, one stream", "us", crowd, ratio(third)},
		largeValueMemory:     {group: groupAbuse, label: "a value of 1 GiB: most memory more", unit: "MiB"},
		announcedMemory:      {group: groupAbuse, label: "2 GiB announced, 10 bytes sent: most memory more", unit: "MiB", at: []int{1}, bar: most(1)},
		bombMemory:           {group: groupAbuse, label: "gzip of 10 MiB that holds 10 GiB: most memory more", unit: "MiB", at: []int{1}, bar: most(256)},
		bombCPU:              {group: groupAbuse, label: "gzip of 10 MiB that holds 10 GiB: server CPU", unit: "ms", at: []int{1}, bar: most(1000)},
		resetMemory:          {group: groupAbuse, label: "100,000 streams reset: most memory more", unit: "MiB", at: []int{1}, bar: most(16)},
		resetCPU:             {group: groupAbuse, label: "100,000 streams reset: server CPU", unit: "ms", at: []int{1}, bar: most(1000)},
		continuationCPU:      {group: groupAbuse, label: "100,000 CONTINUATION: server CPU", unit: "ms", at: []int{1}, bar: most(1000)},
		pingCPU:              {group: groupAbuse, label: "100,000 PING: server CPU", unit: "ms", at: []int{1}, bar: most(1000)},
		settingsCPU:          {group: groupAbuse, label: "100,000 SETTINGS: server CPU", unit: "ms", at: []int{1}, bar: most(1000)},
		emptyDataCPU:         {group: groupAbuse, label: "100,000 empty DATA: server CPU", unit: "ms", at: []int{1}, bar: most(1000)},
	}[m]
}
