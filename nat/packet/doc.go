// Package packet is a view over one IP packet: header fields, checksums, segmentation and fragmentation.
package packet
