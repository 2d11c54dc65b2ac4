// Package release installs, upgrades and removes the installation of one
// cluster: the chart in this program, through Helm's library.
package release
