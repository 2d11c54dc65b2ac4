// Package manager puts the reconcilers of the control plane into one
// manager, and finds out beforehand whether they can work: [Preflight] says in
// plain words what is missing and what to do, where a manager would wait and
// retry.
package manager
