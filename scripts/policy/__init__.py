"""policy — `pillarbox policy`: checks a policy, and tries it on an envelope."""
