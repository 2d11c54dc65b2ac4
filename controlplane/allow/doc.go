// Package allow lists what objects may ask for that the controllers make as a spec of
// somebody else says. Who may write such a spec has the right to that spec; the
// controllers have more, and lend them to nobody: a field passes because it is on a
// list, and one that Kubernetes or an operator adds later does not.
package allow
