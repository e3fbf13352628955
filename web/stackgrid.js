// stackgrid
