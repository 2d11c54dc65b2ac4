// Package bench measures the gateway end to end, between real kernels on one
// machine, next to what a user would run instead. README.md says what each
// figure answers; results holds recorded runs.
package bench
