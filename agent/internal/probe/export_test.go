package probe

// FaultOf is faultOf.
var FaultOf = faultOf
