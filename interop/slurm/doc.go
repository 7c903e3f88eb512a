// Package slurm holds tests of serry run under a real Slurm of four nodes, all on this machine: Debian's slurmctld, four
// slurmd and munge, as scripts/slurm.sh installs them. Jobs are submitted as users do it, by sbatch and srun.
//
// The tests run in namespaces of their own for mounts, the network and processes (TestMain in main_test.go starts itself
// again there). So nodes have names and addresses that no other machine knows, ports cannot be taken, and with the end of
// the tests everything that they have started ends, too. That needs root.
//
// Settings, by environment:
//
//	SERRY_BINARY  the program to test; built from cmd/serry when unset
//	CI=true       a machine that cannot have Slurm or namespaces fails the tests instead of skipping them
//
// Read slurm_test.go first.
package slurm
