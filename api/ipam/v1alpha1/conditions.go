package v1alpha1

// ConditionType is the type of a condition of this group. Every condition has observedGeneration set. Messages say what
// to do.
type ConditionType string

// ConditionReason is the reason of such a condition.
type ConditionReason string

const (
	// ConditionAllocated says whether the status of a [Network] or an [IP] holds what was given.
	//
	// Possible reasons for it to be True:
	//   - Allocated
	//   - Remapped
	//
	// Possible reasons for it to be False:
	//   - Invalid
	//   - Overlap
	//   - Exhausted
	//   - NetworkNotReady
	ConditionAllocated ConditionType = "Allocated"

	// ReasonAllocated means that the Network got the prefix it asked for, or the IP an address.
	ReasonAllocated ConditionReason = "Allocated"
	// ReasonRemapped means that the Network got another prefix of the same length, as its own is in use here.
	ReasonRemapped ConditionReason = "Remapped"
	// ReasonInvalid means that what is asked for is no prefix or address that can be given.
	ReasonInvalid ConditionReason = "Invalid"
	// ReasonOverlap means that a prefix that must not be remapped overlaps one that is in use, or that two objects have
	// been given the same.
	ReasonOverlap ConditionReason = "Overlap"
	// ReasonExhausted means that no pool has a free prefix of that length, or the Network no free address.
	ReasonExhausted ConditionReason = "Exhausted"
	// ReasonNetworkNotReady means that the Network of an IP does not exist or has no prefix yet, or that a Network waits
	// for those of the installation.
	ReasonNetworkNotReady ConditionReason = "NetworkNotReady"
)

const (
	// ConditionServiceReady is there where an [IP] has a service template. It says whether the Service and its
	// EndpointSlice are as the template says.
	//
	// Possible reasons for it to be True:
	//   - ServiceApplied
	//
	// Possible reasons for it to be False:
	//   - ObjectRefused
	ConditionServiceReady ConditionType = "ServiceReady"

	// ReasonServiceApplied means that both exist as the template says.
	ReasonServiceApplied ConditionReason = "ServiceApplied"
	// ReasonObjectRefused means that one of them cannot be made, or is somebody else's. The message says why.
	ReasonObjectRefused ConditionReason = "ObjectRefused"
)
