"""One process per GPU: how the processes of a training start, talk and end."""
