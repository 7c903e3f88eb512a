package main

import "github.com/serry-dev/serry/diagnose"

const (
	stands   = `rank 3 is (stalled|stuck) since \S+ \(\S+\); ranks 0-2 wait for it in Gloo all-reduce`
	segfault = `rank 3 crashed (first )?at \S+: segmentation fault \(signal 11\)|rank 3 ended: signal 11 \(SEGV\)`
)

// libraries are what ranks use: all rows with the newest jax, a slice of them with the last one that speaks the older dialect, and
// one with TensorFlow.
var libraries = []library{
	{"jax", ".cache/venv/jax-new/bin/python", []scenario{
		{name: "segv", clause: "D-SC-1", right: segfault, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`, `output +Fatal Python error: Segmentation fault`, `effects +.*ranks? [0-2]`}, grade: diagnose.Sure, most: atOnce, play: playJob},
		{name: "kill", clause: "D-SC-2", right: `rank 3 was killed at \S+: signal 9, not sent by serry|rank 3 ended: signal 9 \(KILL\)`, shown: []string{`no kernel kill (in control group \S+|on this machine)`}, grade: diagnose.Sure, most: atOnce, play: playJob},
		{name: "memory", clause: "D-SC-3", right: `rank 3 was killed at \S+ because its memory limit of 60 MiB was reached|rank 3 ended: signal 9, killed because its memory limit of 60 MiB was reached`, shown: []string{`kernel kills in control group \S+: 0 before, 1 after, peak 6\S+ MiB`}, grade: diagnose.Sure, most: atOnce, play: playMemory},
		{name: "raise", clause: "D-SC-4", right: `rank 3 raised ValueError( at \S+)?: bad sample 17 in shard 3`, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`, `waits for the others to leave`, `effects +.*ranks? [0-2]`}, grade: diagnose.Sure, most: atOnce, play: playJob},
		{name: "exit", clause: "D-SC-5", right: `rank 3 wants to leave.* while ranks 0-2 wait|rank 3 wants to leave; ranks 0, 1 and 2 do not`, shown: []string{`no exception in the output of rank 3`, `step +(ranks 0-3|rank 3) at step \d+`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "hard-exit", clause: "D-SC-6", right: `rank 3 exited at \S+ with code 0`, shown: []string{`(effects|waiting) +.*ranks? [0-2]`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "sleep", clause: "D-SC-7", right: stands, stuck: `rank 3 is stuck since \S+ \(\S+\); ranks 0-2 wait for it`, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`, `process +pid \d+ on \S+: asleep`, `waiting +ranks 0-2 at `}, grade: diagnose.Likely, most: soon, play: playJob},
		{name: "barrier", clause: "D-SC-8", right: `rank 3 is (stalled|stuck)( since \S+ \(\S+\))?[;:] (ranks 0-2|3 ranks) wait for it at barrier "save-100"`, shown: []string{`process +pid \d+ on \S+: asleep`, `waiting +ranks 0-2 at `}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "crossed", clause: "D-SC-9", right: `deadlock since \S+: ranks 0-1 wait at barrier "a", ranks 2-3 at barrier "b"|ranks wait for each other: rank 2 is at "b" and missing at "a"`, shown: []string{`waiting +ranks 0-1 at `, `waiting +ranks 2-3 at `}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "write", clause: "D-SC-11", right: `rank 3 is slow, not stuck: .*; ranks 0-2 wait`, shown: []string{`storage +\S*/checkpoint\.bin on /`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "slow", clause: "D-SC-12", right: `no failure; rank 3 is \d+ % slower than the others over the last 32 barriers of step-# \(cost \S+ of \S+, \S+ % of the time\)`, grade: diagnose.Likely, most: soon, play: playJob},
		{name: "cut", clause: "D-SC-13", right: `host \S+ is silent since \S+: ranks 2-3 lost with it`, shown: []string{`last heard at \S+; 2 ranks (are|were) heard on other hosts`}, grade: diagnose.Sure, most: silent, play: playCut},
		{name: "leader", clause: "D-SC-14", right: `coordinator failed over from \S+ to \S+ at \S+ \(\S+\); no rank was lost`, grade: diagnose.Sure, most: soon, play: playLeader},
		{name: "no-leader", clause: "D-SC-14", right: `coordinator lost since \S+; ranks are kept waiting until \S+`, most: soon, play: playNoLeader},
		{name: "stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, shown: []string{`process +pid \d+ on \S+: stopped`, `next +kill -CONT \d+`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "gil", clause: "D-SC-16", right: stands, shown: []string{`holds the interpreter lock`, `waiting +ranks 0-2 at `}, grade: diagnose.Likely, most: soon, play: playJob},
		{name: "loop", clause: "D-SC-17", right: `rank 3 has been busy in loop \(train.py:\d+\)`, shown: []string{`at +loop \(train\.py:\d+\)`, `waiting +ranks 0-2 at `}, grade: diagnose.Possible, most: soon, play: playJob},
		{name: "compile", clause: "D-SC-18", right: `no failure; ranks 0-2 wait while rank 3 compiles`, shown: []string{`at +.*(jax|\.py:\d+)`, `waiting +ranks 0-2 at `}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "program", clause: "D-SC-19", right: `rank 3 runs a different program: eval.py, ranks 0-2 run train.py`, grade: diagnose.Sure, most: soon, play: playProgram},
		{name: "world", clause: "D-SC-20", right: `rank 3 expects 5 ranks \(OMPI_COMM_WORLD_SIZE\), the job has 4`, grade: diagnose.Sure, most: soon, play: playWorld},
		{name: "two-ids", clause: "D-SC-21", right: `rank 2: two processes claim this rank|two processes claimed rank 2 at`, shown: []string{`process +(pid \d+ on \S+|incarnation \d+ was there, \d+ came)`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "stale", clause: "D-SC-22", right: `a process of attempt 1 \(rank 3, pid \d+ on \S+\) tried to join attempt 2 and was refused; the job is not affected`, shown: []string{`next +kill \d+`}, grade: diagnose.Sure, most: soon, play: playStale},
		{name: "port", clause: "D-SC-23", right: `port \d+ is taken by `, most: atOnce, play: playService},
		{name: "disk-full", clause: "D-SC-24", right: `rank 3 raised OSError( at \S+)?: \[Errno 28\] No space left on device`, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`}, grade: diagnose.Sure, most: atOnce, play: playJob},
		{name: "preempt", clause: "D-SC-25", right: `preempted at \S+ by notice on rank 1; all 4 ranks saved step \d+ in \S+`, shown: []string{`4 receipts are with the service`}, grade: diagnose.Sure, most: soon, play: playPreempt},
		{name: "unconfirmed", clause: "D-SC-25", right: `preempted at \S+ by notice on rank 1; 3 of 4 ranks saved step \d+ in \S+; rank 3 did not confirm`, shown: []string{`3 receipts are with the service`}, grade: diagnose.Sure, most: soon, play: playPreempt},
		{name: "skew", clause: "D-SC-26", right: `rank 0 crashed (first )?at \S+: segmentation fault|rank 0 ended: signal 11 \(SEGV\)|rank 0: signal 11 \(SEGV\), first of`, shown: []string{`clock of \S+ is 5m00s ahead`}, grade: diagnose.Sure, most: atOnce, play: playSkew},
		{name: "slow-start", clause: "D-SC-27", right: `starting: 3 of 4 ranks are here after \S+, missing rank 3|rank 3 is stalled since \S+ \(\S+\); ranks 0-2 wait for it at the start of the job`, shown: []string{`process +pid \d+ on \S+: asleep`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "no-device", clause: "D-SC-28", right: `ranks 0,2-3 wait for the topology of rank 1|rank 1 is (stalled|stuck) since \S+ \(\S+\); ranks 0,2-3 wait for it`, shown: []string{`key "cpu:local_topology/cpu/1" has not been written|waiting +ranks 0,2-3 at make_cpu_client`}, grade: diagnose.Likely, most: soon, play: playJob},
	}},
	{"jax-0.9.2", ".cache/venv/jax-0.9.2/bin/python", []scenario{
		{name: "segv", clause: "D-SC-1", right: segfault, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`, `output +Fatal Python error: Segmentation fault`, `effects +.*ranks? [0-2]`}, grade: diagnose.Sure, most: atOnce, play: playJob},
		{name: "raise", clause: "D-SC-4", right: `rank 3 raised ValueError( at \S+)?: bad sample 17 in shard 3`, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`, `waits for the others to leave`, `effects +.*ranks? [0-2]`}, grade: diagnose.Sure, most: atOnce, play: playJob},
		{name: "exit", clause: "D-SC-5", right: `rank 3 wants to leave.* while ranks 0-2 wait|rank 3 wants to leave; ranks 0, 1 and 2 do not`, shown: []string{`no exception in the output of rank 3`, `step +(ranks 0-3|rank 3) at step \d+`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "sleep", clause: "D-SC-7", right: stands, shown: []string{`(?m)^  at +inject \(train\.py:\d+\) < load_batch \(train\.py:\d+\)`, `process +pid \d+ on \S+: asleep`, `waiting +ranks 0-2 at `}, grade: diagnose.Likely, most: soon, play: playJob},
		{name: "stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, shown: []string{`process +pid \d+ on \S+: stopped`, `next +kill -CONT \d+`}, grade: diagnose.Sure, most: soon, play: playJob},
		{name: "compile", clause: "D-SC-18", right: `no failure; ranks 0-2 wait while rank 3 compiles`, shown: []string{`at +.*(jax|\.py:\d+)`, `waiting +ranks 0-2 at `}, grade: diagnose.Sure, most: soon, play: playJob},
	}},
	{"tensorflow", ".cache/venv/tf/bin/python", []scenario{
		{name: "tf-segv", clause: "D-SC-1", right: segfault, shown: []string{`output +Fatal Python error: Segmentation fault`}, grade: diagnose.Sure, most: atOnce, play: playTensorFlow},
		{name: "tf-raise", clause: "D-SC-4", right: `rank 3 (raised ValueError( at \S+)?: bad sample 17 in shard 3|(ended: exit code|exited at \S+ with code) 1)`, most: soon, play: playTensorFlow},
		{name: "tf-barrier", clause: "D-SC-8", right: `rank 3 is (stalled|stuck)( since \S+ \(\S+\))?[;:] (ranks 0-2|3 ranks) wait for it at barrier "save-100"`, shown: []string{`waiting +ranks 0-2 at `}, grade: diagnose.Sure, most: soon, play: playTensorFlow},
		{name: "tf-stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, shown: []string{`next +kill -CONT \d+`}, grade: diagnose.Sure, most: soon, play: playTensorFlow},
	}},
}
