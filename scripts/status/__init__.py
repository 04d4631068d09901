"""status — `pillarbox status`: daemons, flow, queue and trouble on one screen."""
