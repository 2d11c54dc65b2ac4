// Command mkimages builds the container images of the project.
package main

func main() {}
