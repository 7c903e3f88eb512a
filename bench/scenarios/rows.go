package main

const (
	stands   = `rank 3 is (stalled|stuck) since \S+ \(\S+\); ranks 0-2 wait for it`
	segfault = `rank 3 crashed (first )?at \S+: segmentation fault \(signal 11\)|rank 3 ended: signal 11 \(SEGV\)`
)

// libraries are what ranks use: all rows with the newest jax, a slice of them with the last one that speaks the older dialect, and
// one with TensorFlow.
var libraries = []library{
	{"jax", ".cache/venv/jax-new/bin/python", []scenario{
		{name: "segv", clause: "D-SC-1", right: segfault, most: atOnce, play: playJob},
		{name: "kill", clause: "D-SC-2", right: `rank 3 was killed at \S+: signal 9, not sent by serry|rank 3 ended: signal 9 \(KILL\)`, shown: `no kernel kill (in control group \S+|on this machine)`, most: atOnce, play: playJob},
		{name: "memory", clause: "D-SC-3", right: `rank 3 was killed at \S+ because its memory limit of 60 MiB was reached|rank 3 ended: signal 9, killed because its memory limit of 60 MiB was reached`, shown: `kernel kills in control group \S+: 0 before, 1 after, peak 6\S+ MiB`, most: atOnce, play: playMemory},
		{name: "raise", clause: "D-SC-4", right: `rank 3 raised ValueError( at \S+)?: bad sample 17 in shard 3`, most: atOnce, play: playJob},
		{name: "exit", clause: "D-SC-5", right: `rank 3 wants to leave.* while ranks 0-2 wait|rank 3 wants to leave; ranks 0, 1 and 2 do not`, most: soon, play: playJob},
		{name: "hard-exit", clause: "D-SC-6", right: `rank 3 exited at \S+ with code 0`, most: soon, play: playJob},
		{name: "sleep", clause: "D-SC-7", right: stands, stuck: `rank 3 is stuck since \S+ \(\S+\); ranks 0-2 wait for it`, most: soon, play: playJob},
		{name: "barrier", clause: "D-SC-8", right: `rank 3 is (stalled|stuck)( since \S+ \(\S+\))?[;:] (ranks 0-2|3 ranks) wait for it at barrier "save-100"`, most: soon, play: playJob},
		{name: "crossed", clause: "D-SC-9", right: `deadlock since \S+: ranks 0-1 wait at barrier "a", ranks 2-3 at barrier "b"|ranks wait for each other: rank 2 is at "b" and missing at "a"`, most: soon, play: playJob},
		{name: "write", clause: "D-SC-11", right: `rank 3 is slow, not stuck: .*; ranks 0-2 wait`, shown: `storage +\S*/checkpoint\.bin on /`, most: soon, play: playJob},
		{name: "slow", clause: "D-SC-12", right: `no failure; rank 3 is \d+ % slower than the others over the last 32 barriers of step-# \(cost \S+ of \S+, \S+ % of the time\)`, most: soon, play: playJob},
		{name: "cut", clause: "D-SC-13", right: `host \S+ is silent since \S+: ranks 2-3 lost with it`, shown: `last heard at \S+; 2 ranks (are|were) heard on other hosts`, most: silent, play: playCut},
		{name: "leader", clause: "D-SC-14", right: `coordinator failed over from \S+ to \S+ at \S+ \(\S+\); no rank was lost`, most: soon, play: playLeader},
		{name: "no-leader", clause: "D-SC-14", right: `coordinator lost since \S+; ranks are kept waiting until \S+`, most: soon, play: playNoLeader},
		{name: "stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, most: soon, play: playJob},
		{name: "gil", clause: "D-SC-16", right: stands, most: soon, play: playJob},
		{name: "loop", clause: "D-SC-17", right: `rank 3 has been busy in loop \(train.py:\d+\)`, most: soon, play: playJob},
		{name: "compile", clause: "D-SC-18", right: `no failure; ranks 0-2 wait while rank 3 compiles`, most: soon, play: playJob},
		{name: "program", clause: "D-SC-19", right: `rank 3 runs a different program: eval.py, ranks 0-2 run train.py`, most: soon, play: playProgram},
		{name: "world", clause: "D-SC-20", right: `rank 3 expects 5 ranks \(OMPI_COMM_WORLD_SIZE\), the job has 4`, most: soon, play: playWorld},
		{name: "two-ids", clause: "D-SC-21", right: `rank 2: two processes claim this rank|two processes (are|were) rank 2`, most: soon, play: playJob},
		{name: "stale", clause: "D-SC-22", right: `a process of attempt 1 \(rank 3, pid \d+ on \S+\) tried to join attempt 2 and was refused; the job is not affected`, most: soon, play: playStale},
		{name: "port", clause: "D-SC-23", right: `port \d+ is taken by `, most: atOnce, play: playService},
		{name: "disk-full", clause: "D-SC-24", right: `rank 3 raised OSError( at \S+)?: \[Errno 28\] No space left on device`, most: atOnce, play: playJob},
		{name: "preempt", clause: "D-SC-25", right: `preempted at \S+ by notice on rank 1; all 4 ranks saved step \d+ in \S+`, shown: `4 receipts are with the service`, most: soon, play: playPreempt},
		{name: "unconfirmed", clause: "D-SC-25", right: `preempted at \S+ by notice on rank 1; 3 of 4 ranks saved step \d+ in \S+; rank 3 did not confirm`, most: soon, play: playPreempt},
		{name: "skew", clause: "D-SC-26", right: `rank 0 crashed (first )?at \S+: segmentation fault|rank 0 ended: signal 11 \(SEGV\)|rank 0: signal 11 \(SEGV\), first of`, shown: `clock of \S+ is 5m00s ahead`, most: atOnce, play: playSkew},
		{name: "slow-start", clause: "D-SC-27", right: `starting: 3 of 4 ranks are here after \S+, missing rank 3|rank 3 is stalled since \S+ \(\S+\); ranks 0-2 wait for it at the start of the job`, most: soon, play: playJob},
		{name: "no-device", clause: "D-SC-28", right: `ranks 0,2-3 wait for the topology of rank 1|rank 1 is (stalled|stuck) since \S+ \(\S+\); ranks 0,2-3 wait for it`, most: soon, play: playJob},
	}},
	{"jax-0.9.2", ".cache/venv/jax-0.9.2/bin/python", []scenario{
		{name: "segv", clause: "D-SC-1", right: segfault, most: atOnce, play: playJob},
		{name: "raise", clause: "D-SC-4", right: `rank 3 raised ValueError( at \S+)?: bad sample 17 in shard 3`, most: atOnce, play: playJob},
		{name: "exit", clause: "D-SC-5", right: `rank 3 wants to leave.* while ranks 0-2 wait|rank 3 wants to leave; ranks 0, 1 and 2 do not`, most: soon, play: playJob},
		{name: "sleep", clause: "D-SC-7", right: stands, most: soon, play: playJob},
		{name: "stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, most: soon, play: playJob},
		{name: "compile", clause: "D-SC-18", right: `no failure; ranks 0-2 wait while rank 3 compiles`, most: soon, play: playJob},
	}},
	{"tensorflow", ".cache/venv/tf/bin/python", []scenario{
		{name: "tf-segv", clause: "D-SC-1", right: segfault, most: atOnce, play: playTensorFlow},
		{name: "tf-raise", clause: "D-SC-4", right: `rank 3 (raised ValueError( at \S+)?: bad sample 17 in shard 3|(ended: exit code|exited at \S+ with code) 1)`, most: soon, play: playTensorFlow},
		{name: "tf-barrier", clause: "D-SC-8", right: `rank 3 is (stalled|stuck)( since \S+ \(\S+\))?[;:] (ranks 0-2|3 ranks) wait for it at barrier "save-100"`, most: soon, play: playTensorFlow},
		{name: "tf-stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, most: soon, play: playTensorFlow},
	}},
}
