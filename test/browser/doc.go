// Package browser drives a headless Chromium for tests of pages, by the DevTools
// protocol through a pair of pipes: no port, and no library.
package browser
