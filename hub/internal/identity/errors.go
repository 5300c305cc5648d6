package identity

import "errors"

// Why somebody or something is refused. Callers branch on these with errors.Is; the text that wraps them is for
// people and holds no secrets.
var (
	// ErrDamaged means that a Secret of ours cannot be used as it is.
	ErrDamaged = errors.New("damaged Secret")
	// ErrInvalid means that a request is not one that could ever succeed.
	ErrInvalid = errors.New("invalid request")

	// ErrMalformedToken means that the text is no token at all.
	ErrMalformedToken = errors.New("malformed token")
	// ErrUnknownToken means that there is no such token, or its secret is another.
	ErrUnknownToken = errors.New("unknown token")
	// ErrExpiredToken means that the token was good once.
	ErrExpiredToken = errors.New("expired token")
	// ErrOtherMember means that the join token is for other members.
	ErrOtherMember = errors.New("token for another member")

	// ErrUnknownMember means that there is no such MemberCluster, or that it is being deleted.
	ErrUnknownMember = errors.New("unknown member")
	// ErrNotAccepted means that the member's spec.accepted is not true.
	ErrNotAccepted = errors.New("member not accepted")
	// ErrNotYours means that another agent speaks for the member.
	ErrNotYours = errors.New("member of another agent")
	// ErrIdentityConflict means that another cluster has the member's name, or another member the cluster.
	ErrIdentityConflict = errors.New("identity conflict")
	// ErrNotAnAgent means that a certificate is not one that Authority issued to an agent.
	ErrNotAnAgent = errors.New("not an agent's certificate")
)
