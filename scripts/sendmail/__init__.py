"""sendmail — the command that cron, mail(1) and scripts call as /usr/sbin/sendmail."""
