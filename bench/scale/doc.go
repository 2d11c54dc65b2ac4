// Package scale measures the controllers on a real control plane that holds
// many objects and nothing else: nodes, pods and peerings without machines
// behind them. README.md says how to run it and what each figure answers.
package scale
