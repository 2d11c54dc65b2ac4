// Package scale measures the controllers on a real control plane that holds
// many objects and nothing else: nodes, pods and peerings without machines
// behind them; and the agent of a node against a real kernel, with many tunnels
// that nobody answers. README.md says how to run it and what each figure answers.
package scale
