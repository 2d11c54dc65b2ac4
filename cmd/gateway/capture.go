package main

import _ "github.com/gopacket/gopacket/pcapgo"
