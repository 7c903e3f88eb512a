package coord

// A Machine is the coordination service of one job. See the package comment.
type Machine struct{}

// New makes a machine with its first epoch open. It panics if cfg is not valid.
func New(cfg Config) *Machine { return &Machine{} }

// Step moves the machine to now, applies ev, and returns what must happen next, in order. The
// slice is valid until the next Step.
func (m *Machine) Step(now Time, ev Event) []Effect { return nil }

// Deadline says when the next Tick is due if nothing else comes.
func (m *Machine) Deadline() (Time, bool) { return 0, false }

// View draws a picture of the machine.
func (m *Machine) View() View { return View{} }

// The ids of the barriers that the service itself uses. Clients cannot call them by name.
const RegisterBarrierID = "[Init]Wait_for_all_tasks_to_register"
